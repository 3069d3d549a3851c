-- Writes a batch of one epoch: records, wake-ups, log entries and unsaved flags. Returns {-1, row} if the fence rejects it,
-- otherwise {settled, index, current body, …} with a pair for each write that found another record than expected.
local header, fences, log, wakes, tails, marks = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6] -- then buckets
local epoch, last, next, log_limit, log_bytes, rows = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
-- columns: bucket index, field, expected body, value, tail, wake-up, unsaved flag, log entry
local ROW = '>I3Bc0I3c0I3c0I3c0I6BI3c0'
local row = call('HGET', fences, epoch)
if row ~= last then return {-1, row} end
local names = read_wakes(wakes, 6)
call('HSET', fences, epoch, next)
local state, head, before = read_header(header)
local tag = before
local answer, entries, marked, at, index = {is_settled(state) and 1 or 0}, {}, {}, 1, 0
while at <= #rows do
  local i, field, expected, value, tail, wake, mark, entry
  i, field, expected, value, tail, wake, mark, entry, at = unpack_number(ROW, rows, at)
  local bucket = KEYS[6 + i]
  local old = call('HGET', bucket, field)
  local current = old and body_of(tails, field, old) or ''
  if current ~= expected then
    answer[#answer + 1] = index
    answer[#answer + 1] = current
  else
    if old or value ~= '' then store(bucket, tails, field, old, value, tail) end
    move_wake(i, old and wake_of(old) or nil, wake)
    if mark ~= KEPT then marked[field] = mark == SET end
    if entry ~= '' then
      entries[#entries + 1] = field
      entries[#entries + 1] = entry
    end
  end
  index = index + 1
end
write_marks(marks, marked)
if write_wakes(wakes, names, 6) or entries[1] then
  if entries[1] then tag = epoch .. '.' .. next end
  write_header(header, wakes, state, append(log, head, before, tag, entries, log_limit, log_bytes), tag)
end
return answer
