-- Raises the number in an epoch's fence row. Returns the previous number; nil, and does nothing, if there is no row.
local fences = KEYS[1]
local epoch, number = ARGV[1], ARGV[2]
local row = redis.call('HGET', fences, epoch)
if row and tonumber(row) < tonumber(number) then redis.call('HSET', fences, epoch, number) end
return row
