-- Writes a batch of one epoch: records, wake-ups, log entries and marks. Answers {-1, row} when the fence bars it, otherwise
-- {settled, index, current body, …} with the writes that found something else.
local header, fences, log, wakes, tails, marks = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6] -- then buckets
local epoch, last, next, log_limit = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- then per write: which bucket, field, expected body, prefix, body, wake-up, mark and note
local row = call('HGET', fences, epoch)
if row ~= last then return {-1, row} end
call('HSET', fences, epoch, next)
local state, head = read_header(header)
local was, moved, answer = head, false, {state == 's' and 1 or 0}
for i = 5, #ARGV, 7 do
  local bucket, field, prefix, body = KEYS[6 + ARGV[i]], ARGV[i + 1], ARGV[i + 3], ARGV[i + 4]
  local wake, extra = tonumber(ARGV[i + 5]), ARGV[i + 6]
  local old = call('HGET', bucket, field)
  local current = old and body_of(tails, field, old) or ''
  if current ~= ARGV[i + 2] then
    answer[#answer + 1], answer[#answer + 2] = (i - 5) / 7, current
  else
    if old or prefix ~= '' then store(bucket, tails, field, old, prefix, body) end
    if move_wake(wakes, bucket, old and wake_of(old) or nil, wake) then moved = true end
    local mark = byte(extra)
    if mark == 43 then call('SADD', marks, field) elseif mark == 45 and old then call('SREM', marks, field) end
    if #extra > 1 then
      head = head + 1
      call('XADD', log, 'MAXLEN', '~', log_limit, string.format('%.0f-0', head), field, sub(extra, 2) .. body)
    end
  end
end
if moved or head ~= was then write_header(header, wakes, state, head) end
return answer
