-- Topics by name: whether the topic exists, and what is known of it; when the last topic of that name was first missed; and, if the
-- existing one was created after that, since when the job knows it.
named AS (
  SELECT topic, max(CASE WHEN deleted_at IS NULL THEN topic_id END) AS topic_id, max(CASE WHEN deleted_at IS NULL THEN partitions END) AS partitions,
         max(CASE WHEN deleted_at IS NULL THEN last_seen_at END) AS last_seen_at, max(deleted_at) AS deleted_at,
         CASE WHEN count(deleted_at) > 0 THEN max(CASE WHEN deleted_at IS NULL THEN first_seen_at END) END AS recreated_at,
         count(CASE WHEN deleted_at IS NULL THEN 1 END) AS there
  FROM topics GROUP BY topic
)
