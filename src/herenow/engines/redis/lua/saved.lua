-- Clears the unsaved flags of records that are still the saved ones, and removes those records that are to be dropped.
local header, wakes, tails, marks = KEYS[1], KEYS[2], KEYS[3], KEYS[4] -- then buckets
local rows = ARGV[1]
-- columns: bucket index, field, saved body, 1 to drop it
local names, marked, at = read_wakes(wakes, 4), {}, 1
while at <= #rows do
  local i, field, body, drop
  i, field, body, drop, at = unpack_number('>I3Bc0I3c0B', rows, at)
  local old = call('HGET', KEYS[4 + i], field)
  if old and body_of(tails, field, old) == body then
    marked[field] = false
    if drop == 1 then
      store(KEYS[4 + i], tails, field, old, '', '')
      move_wake(i, wake_of(old), NEVER)
    end
  end
end
write_marks(marks, marked)
if write_wakes(wakes, names, 4) then
  local state, head, tag = read_header(header)
  write_header(header, wakes, state, head, tag)
end
