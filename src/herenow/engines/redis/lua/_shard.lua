-- Functions that the scripts of a shard share. codec.py describes the format of a value, keys.py the keys.
local call, byte, sub, unpack_number = redis.call, string.byte, string.sub, struct.unpack
-- Formats by length n: a relative wake-up of n bytes, then the record's version, to which it is added.
local WAKE = {'>I1xxI6', '>I2xxI6', '>I3xxI6', '>I4xxI6', '>I5xxI6'}

-- The wake-up in epoch milliseconds; nil: none.
local function wake_of(value)
  local n = byte(value) % 128
  if n == 0 then return nil end
  if n == 6 then return (unpack_number('>I6', value, 2)) end
  local wake, version = unpack_number(WAKE[n], value, 2)
  return wake + version
end

local function body_of(tails, field, value)
  local n = byte(value)
  if n < 128 then return sub(value, n + 2) end
  if #value == n - 127 then return '' end
  return call('HGET', tails, field)
end

-- An empty value removes the user from the bucket. old: the value there now, false if there is none.
local function store(bucket, tails, field, old, value, tail)
  local had_tail = old and byte(old) >= 128
  if value == '' then
    call('HDEL', bucket, field)
  elseif byte(value) >= 128 then
    call('HSET', tails, field, tail)
    call('HSET', bucket, field, value)
    return
  else
    call('HSET', bucket, field, value)
  end
  if had_tail then call('HDEL', tails, field) end
end

local function earliest(bucket)
  local first
  for _, value in ipairs(call('HVALS', bucket)) do
    local wake = wake_of(value)
    if wake and (not first or wake < first) then first = wake end
  end
  return first
end

-- By index i of a bucket in this call: firsts has its earliest wake-up, earlier is true if that changed, gone is true if it was
-- removed, so that the bucket's other users must be read. All buckets are read with one command and written with another.
local firsts, earlier, gone = {}, {}, {}

-- Calls one command with many arguments, in chunks that fit on Lua's stack.
local function in_parts(command, key, arguments)
  local answers = {}
  for from = 1, #arguments, 2000 do
    local answer = call(command, key, unpack(arguments, from, math.min(from + 1999, #arguments)))
    if type(answer) == 'table' then
      for i = 1, #answer do answers[from + i - 1] = answer[i] end
    end
  end
  return answers
end

-- Reads the earliest wake-up of each bucket of this call into firsts. Bucket keys come after KEYS[bucket_at]. Returns the
-- buckets' members in the sorted set: their numbers, which begin two characters after the length of the header's key KEYS[1].
local function read_wakes(wakes, bucket_at)
  local names, from = {}, #KEYS[1] + 2
  for i = 1, #KEYS - bucket_at do names[i] = sub(KEYS[bucket_at + i], from) end
  firsts = in_parts('ZMSCORE', wakes, names)
  return names
end

-- A row's value for "no wake-up".
local NEVER = 2 ^ 48 - 1

-- Updates firsts, earlier and gone when a user's wake-up in bucket i changes.
local function move_wake(i, was, is)
  if is == NEVER then is = nil end
  if was == is then return end
  local first = tonumber(firsts[i] or nil)
  if is and (not first or is < first) then
    firsts[i], earlier[i] = is, true
  elseif was == first then
    gone[i] = true
  end
end

-- Writes what move_wake has changed. Returns something true if there was anything to write.
local function write_wakes(wakes, names, bucket_at)
  local set, removed = {}, {}
  for i in pairs(gone) do
    firsts[i] = earliest(KEYS[bucket_at + i])
    earlier[i] = firsts[i] and true
    if not firsts[i] then removed[#removed + 1] = names[i] end
  end
  for i in pairs(earlier) do
    set[#set + 1] = firsts[i]
    set[#set + 1] = names[i]
  end
  in_parts('ZADD', wakes, set)
  in_parts('ZREM', wakes, removed)
  return set[1] or removed[1]
end

-- Values of a row's column for the unsaved flag.
local KEPT, SET = 0, 1

-- marked: field → true to set the unsaved flag, false to clear it
local function write_marks(marks, marked)
  local set, taken = {}, {}
  for field, is in pairs(marked) do
    local list = is and set or taken
    list[#list + 1] = field
  end
  in_parts('SADD', marks, set)
  in_parts('SREM', marks, taken)
end

-- Last word of the header, "from,since,bytes": the log keeps entries after number `from`, and `bytes` were appended after number
-- `since`. read_header sets it, append updates it, write_header writes it. Empty: nothing was appended since the log began.
local span = ''

-- Counts appended bytes, and returns the lowest number that the log keeps. Whenever half of the limit was appended, the entries
-- before the last half go: no command is needed to measure the log.
local function kept_from(before, head, size, max_bytes)
  local from, since, bytes = string.match(span, '^(%d+),(%d+),(%d+)$')
  from, since, bytes = tonumber(from or 0), tonumber(since or before), tonumber(bytes or 0) + size
  if bytes > max_bytes / 2 then from, since, bytes = since, head, 0 end
  span = string.format('%.0f,%.0f,%.0f', from, since, bytes)
  return from + 1
end

-- Appends the entries of a batch as one stream entry (a very large batch as several), whose id is the number of the last one.
-- Its first field is empty and has the tag of the batch before and its own, so that a reader notices another branch of the
-- store. Returns that number.
local function append(log, head, before, tag, entries, limit, max_bytes)
  for from = 1, #entries, 2000 do
    local to = math.min(from + 1999, #entries)
    local size, reached = 0, head
    for i = from, to do size = size + #entries[i] end
    head = head + (to - from + 1) / 2
    local oldest = string.format('%.0f', math.max(head - limit, kept_from(reached, head, size, max_bytes)))
    local tags = before .. ' ' .. tag
    call('XADD', log, 'MINID', '~', oldest, string.format('%.0f-0', head), '', tags, unpack(entries, from, to))
    before = tag
  end
  return head
end

local function read_header(header)
  local found = call('GET', header)
  if not found then return '?', 0, '' end
  local state, head, tag
  state, head, tag, span = string.match(found, '^(%S+) (%d+) %S+ ?(%S*) ?(%S*)')
  return state, tonumber(head), tag
end

local function is_settled(state) return byte(state) == 115 end

local function write_header(header, wakes, state, head, tag)
  local next = call('ZRANGE', wakes, 0, 0, 'WITHSCORES')[2] or '-'
  call('SET', header, string.format('%s %.0f %s %s %s', state, head, next, tag, span))
end

local function unsettle(header, log, wakes, head, now)
  call('DEL', log)
  span = ''
  write_header(header, wakes, 'u' .. now, math.max(head + 1, tonumber(now)), 'u' .. now)
end
