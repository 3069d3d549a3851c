-- Writes a node's lease. Returns 0, and writes nothing, if the lease is dead, or if it is missing and not a new one.
local leases = KEYS[1]
local epoch, counter, renewed_at, begins = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local row = redis.call('HGET', leases, epoch)
if row then
  local current, state = string.match(row, '^(%d+) %d+ (%a+)$')
  if state == 'dead' then return 0 end
  if tonumber(current) >= tonumber(counter) then return 1 end -- a late call: the counter never decreases
elseif begins == '0' then
  return 0
end
redis.call('HSET', leases, epoch, counter .. ' ' .. renewed_at .. ' alive')
return 1
