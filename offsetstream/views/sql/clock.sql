-- The instant of which every view speaks: now. Who asks about another one replaces this one relation.
--
--   now_at TIMESTAMP: Now
SELECT current_timestamp() AS now_at
