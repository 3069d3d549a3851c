-- Writes a batch of one epoch: records, wake-ups, log entries and marks. Answers {-1, row} when the fence bars it, otherwise
-- {settled, index, current body, …} with the writes that found something else.
local header, fences, log, wakes, tails, marks = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6] -- then buckets
local epoch, last, next, log_limit, buckets = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
-- then the buckets' names, then per write: which bucket, field, expected body, prefix, body, wake-up, mark and note
local row = call('HGET', fences, epoch)
if row ~= last then return {-1, row} end
local names = read_wakes(wakes, 6, buckets)
call('HSET', fences, epoch, next)
local state, head = read_header(header)
local answer, entries, marked, writes = {state == 's' and 1 or 0}, {}, {}, 6 + buckets
for at = writes, #ARGV, 7 do
  local i, field, prefix, body, extra = tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 3], ARGV[at + 4], ARGV[at + 6]
  local old = call('HGET', KEYS[6 + i], field)
  local current = old and body_of(tails, field, old) or ''
  if current ~= ARGV[at + 2] then
    answer[#answer + 1] = (at - writes) / 7
    answer[#answer + 1] = current
  else
    if old or prefix ~= '' then store(KEYS[6 + i], tails, field, old, prefix, body) end
    move_wake(i, old and wake_of(old) or nil, tonumber(ARGV[at + 5]))
    local mark = byte(extra)
    if mark ~= 61 then marked[field] = mark == 43 end
    if #extra > 1 then
      entries[#entries + 1] = field
      entries[#entries + 1] = sub(extra, 2) .. body
    end
  end
end
write_marks(marks, marked)
if write_wakes(wakes, names, 6) or entries[1] then
  write_header(header, wakes, state, append(log, head, entries, log_limit))
end
return answer
