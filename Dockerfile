# offsetstream with all that it runs on: its Python packages, a Java, and the jars of Spark's Kafka source and of Delta.
# A container of it fetches nothing. `docker build --target s3 .` makes the one that keeps its tables on S3 as well.
FROM python:3.11.14-slim-bookworm AS base
ENV VIRTUAL_ENV=/opt/offsetstream
ENV PATH=$VIRTUAL_ENV/bin:$PATH OFFSETSTREAM_CACHE=$VIRTUAL_ENV/downloads PYTHONUNBUFFERED=1

FROM base AS build
WORKDIR /build
COPY requirements.lock pyproject.toml ./
RUN python -m venv "$VIRTUAL_ENV"
# What installs the rest, by hashes too. PySpark comes as source alone, and is built by this setuptools.
RUN sed -n '/^\(setuptools\|uv\)==/,/# via/p' requirements.lock > tools.lock \
 && pip install --no-cache-dir --disable-pip-version-check --require-hashes --requirement tools.lock
# Of the lock, which has what development needs besides, only what the job needs: a package without a hash there, or
# with another one, ends the build.
RUN uv pip install --no-cache --no-build-isolation --require-hashes --constraint requirements.lock \
        --requirement pyproject.toml --extra all
COPY README.md LICENSE setup.py ./
COPY offsetstream offsetstream
RUN uv build --no-cache --wheel --no-build-isolation --python "$VIRTUAL_ENV/bin/python" --out-dir dist \
 && uv pip install --no-cache --no-deps dist/offsetstream-*.whl \
 && pip uninstall --yes --quiet --disable-pip-version-check setuptools uv
# The jars of Spark's Kafka source and of Delta, where every command of ours looks for them.
RUN python -I -c "from offsetstream.embedded.artifacts import resolve; from offsetstream.spark.session import connectors; resolve(connectors())"

FROM build AS s3-jars
RUN mkdir s3-jars \
 && OFFSETSTREAM_CACHE=s3-cache python -I -c "from offsetstream.embedded.artifacts import resolve; print(*resolve(['org.apache.hadoop:hadoop-aws:3.4.1']), sep='\n')" > s3-list \
 && xargs cp --target-directory s3-jars < s3-list

FROM base AS job
RUN useradd --uid 10001 --create-home offsetstream \
 && install --directory --owner offsetstream --group offsetstream /data /secrets/grafana /secrets/s3
COPY --from=build /opt/offsetstream /opt/offsetstream
USER offsetstream
WORKDIR /data
EXPOSE 9464
# Of `run --metrics-port 9464 --metrics-address 0.0.0.0`.
HEALTHCHECK --interval=30s --timeout=5s --start-period=2m \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9464/healthz', timeout=4)"]
ENTRYPOINT ["offsetstream"]
CMD ["--help"]

FROM job AS s3
COPY --from=s3-jars /build/s3-jars /opt/offsetstream/s3-jars

# What is built where no target is named.
FROM job
