-- Puts records where there is none or an older one, as long as the shard is not settled. Answers whether it took them.
local header, wakes, tails, marks = KEYS[1], KEYS[2], KEYS[3], KEYS[4] -- then buckets
-- ARGV per offer: which bucket, field, version, prefix, body, wake-up, mark
local state, head = read_header(header)
if state == 's' then return 0 end
for i = 1, #ARGV, 7 do
  local bucket, field, version = KEYS[4 + ARGV[i]], ARGV[i + 1], tonumber(ARGV[i + 2])
  local old = call('HGET', bucket, field)
  local at = old and byte(old) % 128 + 4
  if not old or #old < at or unpack_number('>I6', old, at) < version then
    store(bucket, tails, field, old, ARGV[i + 3], ARGV[i + 4])
    move_wake(wakes, bucket, old and wake_of(old) or nil, tonumber(ARGV[i + 5]))
    if ARGV[i + 6] == '+' then call('SADD', marks, field) end
  end
end
write_header(header, wakes, state, head)
return 1
