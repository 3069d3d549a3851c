-- Settles the shard if it was unsettled at least `after` ms ago. Returns 1 if it is settled now.
local header, log, wakes = KEYS[1], KEYS[2], KEYS[3]
local now, after = ARGV[1], ARGV[2]
local state, head, tag = read_header(header)
if is_settled(state) then return 1 end
if state == '?' then
  unsettle(header, log, wakes, head, now)
elseif now - sub(state, 2) >= tonumber(after) then
  write_header(header, wakes, 's' .. sub(state, 2), head, tag)
  return 1
end
return 0
