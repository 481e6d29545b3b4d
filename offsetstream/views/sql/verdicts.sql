-- One row per verdict: how grave it is, and what it means. Made by `make docs` from views/verdicts.py.
--
--   verdict STRING: The word
--   level STRING: OK, UNKNOWN, WARN or ERR
--   rank INT: Place among the verdicts, the worst last: a group has the worst of its partitions
--   metric_value INT: What metrics have for the level: 0 OK, 1 UNKNOWN, 2 WARN, 3 ERR
--   meaning STRING: What it means
SELECT verdict, level, rank, metric_value, meaning FROM (VALUES
  ('ok', 'OK', 0, 0, 'Nothing waits, or the group keeps up with what is written'),
  ('catching up', 'OK', 1, 0, 'The lag falls'),
  ('unknown', 'UNKNOWN', 2, 1, 'The tables cannot tell: the reason says what they lack'),
  ('abandoned', 'WARN', 3, 2, 'Messages wait in a topic that no member of the live group subscribes to any more'),
  ('waiting', 'WARN', 4, 2, 'All is read but what lies behind a transaction that is open for a minute or longer'),
  ('blocked', 'WARN', 5, 2, 'An open transaction has blocked the offsets partition for a minute: what the group did since is unreadable'),
  ('unstable', 'WARN', 6, 2, 'Six rebalances and more in five minutes, with a client that comes and goes'),
  ('beyond the end', 'WARN', 7, 2, 'The committed offset is beyond the end of the log: the client will start anew'),
  ('falling behind', 'WARN', 8, 2, 'The lag rose in window_seconds, and the group was never caught up in between'),
  ('late', 'WARN', 9, 2, 'Messages wait for longer than max_time_lag_seconds'),
  ('stalled', 'ERR', 10, 3, 'The group commits, but always the same offset, and messages wait'),
  ('stopped', 'ERR', 11, 3, 'Messages wait, and the last commit is older than all the last commits took together'),
  ('rewound', 'ERR', 12, 3, 'The group committed a lower offset, and has not come back to where it was'),
  ('dead', 'ERR', 13, 3, 'Messages wait, and a group without members committed nothing for window_seconds')
) AS v (verdict, level, rank, metric_value, meaning)
