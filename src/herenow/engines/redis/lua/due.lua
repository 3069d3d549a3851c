-- Reads the due users of buckets. Returns {earliest wake-up that is not due, or "", then per user: field, body, wake-up}. The
-- body is given only if the field is a digest, because it then holds the user's id.
local tails = KEYS[1] -- then buckets
local now = tonumber(ARGV[1])
local answer, next = {''}, nil
for bucket = 2, #KEYS do
  local found = call('HGETALL', KEYS[bucket])
  for i = 1, #found, 2 do
    local field, wake = found[i], wake_of(found[i + 1])
    if wake and wake <= now then
      answer[#answer + 1] = field
      answer[#answer + 1] = byte(field) == 0 and call('HGET', tails, field) or ''
      answer[#answer + 1] = string.format('%.0f', wake)
    elseif wake and (not next or wake < next) then
      next = wake
    end
  end
end
if next then answer[1] = string.format('%.0f', next) end
return answer
