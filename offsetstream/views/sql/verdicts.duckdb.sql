-- Reads: 
SELECT
  verdict,
  level,
  rank,
  metric_value,
  meaning
FROM (VALUES
  ('ok', 'OK', 0, 0, 'No message waits, or the group keeps up with the producers'),
  ('catching up', 'OK', 1, 0, 'The lag falls'),
  (
    'unknown',
    'UNKNOWN',
    2,
    1,
    'The tables lack the data to judge; the reason names what is missing'
  ),
  (
    'abandoned',
    'WARN',
    3,
    2,
    'Messages wait in a topic that no member of the live group subscribes to any more'
  ),
  (
    'waiting',
    'WARN',
    4,
    2,
    'All is read up to a transaction that has been open for at least a minute'
  ),
  (
    'blocked',
    'WARN',
    5,
    2,
    'An open transaction has blocked the offsets partition for at least a minute, so newer commits are not visible'
  ),
  (
    'unstable',
    'WARN',
    6,
    2,
    'Six or more rebalances in five minutes, with a client that comes and goes'
  ),
  (
    'beyond the end',
    'WARN',
    7,
    2,
    'The committed offset is beyond the end of the log, so the client will reset it'
  ),
  (
    'falling behind',
    'WARN',
    8,
    2,
    'The lag rose within window_seconds, and the group did not catch up in between'
  ),
  (
    'late',
    'WARN',
    9,
    2,
    'Messages have waited for longer than max_time_lag_seconds'
  ),
  (
    'stalled',
    'ERR',
    10,
    3,
    'The group keeps committing the same offset while messages wait'
  ),
  (
    'stopped',
    'ERR',
    11,
    3,
    'Messages wait, and the time since the last commit exceeds the span of the last commits'
  ),
  (
    'rewound',
    'ERR',
    12,
    3,
    'The group committed a lower offset and has not reached its previous offset again'
  ),
  (
    'dead',
    'ERR',
    13,
    3,
    'Messages wait, the group has no members, and it has not committed for window_seconds'
  )) AS v(verdict, level, rank, metric_value, meaning)
