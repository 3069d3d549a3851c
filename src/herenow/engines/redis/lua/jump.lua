-- Raises the fence's row of an epoch. Answers what it was; nil, and nothing done, when there is none.
local fences = KEYS[1]
local epoch, number = ARGV[1], ARGV[2]
local row = redis.call('HGET', fences, epoch)
if row and tonumber(row) < tonumber(number) then redis.call('HSET', fences, epoch, number) end
return row
