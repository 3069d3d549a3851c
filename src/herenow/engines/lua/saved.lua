-- Takes marks away, and where asked the record too, where it is still the one that was saved.
local header, wakes, tails, marks = KEYS[1], KEYS[2], KEYS[3], KEYS[4] -- then buckets
-- ARGV per row: which bucket, field, saved body, 1 to drop it
local moved = false
for i = 1, #ARGV, 4 do
  local bucket, field = KEYS[4 + ARGV[i]], ARGV[i + 1]
  local old = call('HGET', bucket, field)
  if old and body_of(tails, field, old) == ARGV[i + 2] then
    call('SREM', marks, field)
    if ARGV[i + 3] == '1' then
      store(bucket, tails, field, old, '', '')
      if move_wake(wakes, bucket, wake_of(old), nil) then moved = true end
    end
  end
end
if moved then
  local state, head = read_header(header)
  write_header(header, wakes, state, head)
end
