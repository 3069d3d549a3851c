-- Declares a lease dead if its counter is still the given one. Returns 1 if it did.
local leases = KEYS[1]
local epoch, counter = ARGV[1], ARGV[2]
local row = redis.call('HGET', leases, epoch)
if not row then return 0 end
local current, renewed_at, state = string.match(row, '^(%d+) (%d+) (%a+)$')
if state == 'dead' or current ~= counter then return 0 end
redis.call('HSET', leases, epoch, counter .. ' ' .. renewed_at .. ' dead')
return 1
