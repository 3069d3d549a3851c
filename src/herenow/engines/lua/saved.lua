-- Takes marks away, and where asked the record too, where it is still the one that was saved.
local header, wakes, tails, marks = KEYS[1], KEYS[2], KEYS[3], KEYS[4] -- then buckets
local buckets = tonumber(ARGV[1])
-- then the buckets' names, then per row: which bucket, field, saved body, 1 to drop it
local names, marked = read_wakes(wakes, 2, buckets), {}
for at = 2 + buckets, #ARGV, 4 do
  local i, field = tonumber(ARGV[at]), ARGV[at + 1]
  local old = call('HGET', KEYS[4 + i], field)
  if old and body_of(tails, field, old) == ARGV[at + 2] then
    marked[field] = false
    if ARGV[at + 3] == '1' then
      store(KEYS[4 + i], tails, field, old, '', '')
      move_wake(i, wake_of(old), nil)
    end
  end
end
write_marks(marks, marked)
if write_wakes(wakes, names, 4) then
  local state, head = read_header(header)
  write_header(header, wakes, state, head)
end
