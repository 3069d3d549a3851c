-- Records that the shard lost data. The first call sets the time and restarts the log, so that every reader gets a gap.
local header, log, wakes = KEYS[1], KEYS[2], KEYS[3]
local now = ARGV[1]
local state, head = read_header(header)
if byte(state) ~= 117 then unsettle(header, log, wakes, head, now) end
