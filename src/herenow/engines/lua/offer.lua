-- Puts records where there is none or an older one, as long as the shard is not settled, and it is not to be for a while.
-- Answers whether it took them.
local header, wakes, tails, marks = KEYS[1], KEYS[2], KEYS[3], KEYS[4] -- then buckets
local since, buckets = tonumber(ARGV[1]), tonumber(ARGV[2])
-- then the buckets' names, then per offer: which bucket, field, version, prefix, body, wake-up, mark
local state, head = read_header(header)
if state == 's' then return 0 end
local names, marked = read_wakes(wakes, 3, buckets), {}
for at = 3 + buckets, #ARGV, 7 do
  local i, field = tonumber(ARGV[at]), ARGV[at + 1]
  local old = call('HGET', KEYS[4 + i], field)
  local version_at = old and byte(old) % 128 + 4
  if not old or #old < version_at or unpack_number('>I6', old, version_at) < tonumber(ARGV[at + 2]) then
    store(KEYS[4 + i], tails, field, old, ARGV[at + 3], ARGV[at + 4])
    move_wake(i, old and wake_of(old) or nil, tonumber(ARGV[at + 5]))
    if ARGV[at + 6] == '+' then marked[field] = true end
  end
end
write_marks(marks, marked)
write_wakes(wakes, names, 4)
if state ~= '?' and tonumber(sub(state, 2)) < since then state = 'u' .. ARGV[1] end
write_header(header, wakes, state, head)
return 1
