-- Answers {settled, body, …} of fields; an empty body is no record.
local header, tails = KEYS[1], KEYS[2] -- then buckets
-- ARGV per field: which bucket, field
local answer, n = {read_header(header) == 's' and 1 or 0}, 1
for i = 1, #ARGV, 2 do
  local value = call('HGET', KEYS[2 + ARGV[i]], ARGV[i + 1])
  n = n + 1
  answer[n] = value and body_of(tails, ARGV[i + 1], value) or ''
end
return answer
