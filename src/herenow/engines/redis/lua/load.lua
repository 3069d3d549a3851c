-- Reads records together with their tails. Returns {settled, body, …} in the order of the rows; an empty body: no record.
local header, tails, rows = KEYS[1], KEYS[2], ARGV[1] -- then buckets
-- columns: bucket index, field
local answer, n, at = {is_settled(read_header(header)) and 1 or 0}, 1, 1
while at <= #rows do
  local i, field
  i, field, at = unpack_number('>I3Bc0', rows, at)
  local value = call('HGET', KEYS[2 + i], field)
  n = n + 1
  answer[n] = value and body_of(tails, field, value) or ''
end
return answer
