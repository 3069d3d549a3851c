-- Reads buckets until there are enough records. Returns {number of buckets read, field, body, …}.
local tails = KEYS[1] -- then buckets
local enough = tonumber(ARGV[1])
local answer, read = {0}, 0
while read < #KEYS - 1 and #answer < 2 * enough + 1 do
  read = read + 1
  local found = call('HGETALL', KEYS[1 + read])
  for i = 1, #found, 2 do
    local body = body_of(tails, found[i], found[i + 1])
    if body ~= '' then answer[#answer + 1], answer[#answer + 2] = found[i], body end
  end
end
answer[1] = read
return answer
