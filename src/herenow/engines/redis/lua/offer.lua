-- Writes records that are missing or older in the store, if the shard is unsettled, and keeps it unsettled for longer.
-- Returns 1 if the shard is unsettled.
local header, wakes, tails, marks = KEYS[1], KEYS[2], KEYS[3], KEYS[4] -- then buckets
local since, rows = tonumber(ARGV[1]), ARGV[2]
-- columns: bucket index, field, version, value, tail, wake-up, unsaved flag
local ROW = '>I3Bc0I6I3c0I3c0I6B'
local state, head, tag = read_header(header)
if is_settled(state) then return 0 end
local names, marked, at = read_wakes(wakes, 4), {}, 1
while at <= #rows do
  local i, field, version, value, tail, wake, mark
  i, field, version, value, tail, wake, mark, at = unpack_number(ROW, rows, at)
  local old = call('HGET', KEYS[4 + i], field)
  local version_at = old and byte(old) % 128 + 4
  if not old or #old < version_at or unpack_number('>I6', old, version_at) < version then
    store(KEYS[4 + i], tails, field, old, value, tail)
    move_wake(i, old and wake_of(old) or nil, wake)
    if mark == SET then marked[field] = true end
  end
end
write_marks(marks, marked)
write_wakes(wakes, names, 4)
if state ~= '?' and tonumber(sub(state, 2)) < since then state = 'u' .. ARGV[1] end
write_header(header, wakes, state, head, tag)
return 1
