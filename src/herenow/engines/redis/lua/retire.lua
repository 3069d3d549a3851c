-- Deletes the fence row of an epoch and remembers the epoch, so that it is not created again.
local fences, retired = KEYS[1], KEYS[2]
local epoch, remembered = ARGV[1], ARGV[2]
local latest = redis.call('ZREVRANGE', retired, 0, 0, 'WITHSCORES')[2] or 0
redis.call('ZADD', retired, latest + 1, epoch)
redis.call('ZREMRANGEBYRANK', retired, 0, -1 - remembered)
redis.call('HDEL', fences, epoch)
