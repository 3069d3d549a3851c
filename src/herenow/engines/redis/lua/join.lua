-- Creates an epoch's fence row or raises its number. Returns 0, and does nothing, if the epoch was retired.
local fences, retired = KEYS[1], KEYS[2]
local epoch, number = ARGV[1], ARGV[2]
if redis.call('ZSCORE', retired, epoch) then return 0 end
local row = redis.call('HGET', fences, epoch)
if not row or tonumber(row) < tonumber(number) then redis.call('HSET', fences, epoch, number) end
return 1
