-- What the scripts of one shard share. How a value is laid out is told in codec.py, what the keys are in keys.py.
local call, byte, sub, unpack_number = redis.call, string.byte, string.sub, struct.unpack
-- A wake-up of n bytes and the version it counts from.
local WAKE = {'>I1xxI6', '>I2xxI6', '>I3xxI6', '>I4xxI6', '>I5xxI6'}

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

-- value '': nothing is left of the user
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

-- Each bucket's earliest wake-up, read together and written together: i is a bucket's place among those of this call. Only
-- when the earliest itself goes, the others of its bucket are looked at.
local firsts, earlier, gone = {}, {}, {}

-- One command with many arguments, in portions that fit on Lua's stack.
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

-- What the buckets after the given key are called in the sorted set, and the earliest wake-up of each. A name is what a
-- bucket's key has beyond the header's, which comes first.
local function read_wakes(wakes, bucket_at)
  local names, from = {}, #KEYS[1] + 2
  for i = 1, #KEYS - bucket_at do names[i] = sub(KEYS[bucket_at + i], from) end
  firsts = in_parts('ZMSCORE', wakes, names)
  return names
end

-- What a row says where there is no wake-up.
local NEVER = 2 ^ 48 - 1

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

-- What a row says of its user's mark.
local KEPT, SET = 0, 1

-- field → whether it is marked from now on
local function write_marks(marks, marked)
  local set, taken = {}, {}
  for field, is in pairs(marked) do
    local list = is and set or taken
    list[#list + 1] = field
  end
  in_parts('SADD', marks, set)
  in_parts('SREM', marks, taken)
end

-- All entries of a batch are one entry of the stream, whose id is the number of the last one. Its first field is empty and
-- has the tag of the batch before and its own, so that a reader notices another history. Returns the new head.
local function append(log, head, before, tag, entries, limit)
  for from = 1, #entries, 2000 do
    local to = math.min(from + 1999, #entries)
    head = head + (to - from + 1) / 2
    local oldest = string.format('%.0f', math.max(0, head - limit))
    call('XADD', log, 'MINID', '~', oldest, string.format('%.0f-0', head), '', before .. ' ' .. tag, unpack(entries, from, to))
    before = tag
  end
  return head
end

local function read_header(header)
  local found = call('GET', header)
  if not found then return '?', 0, '' end
  local state, head, tag = string.match(found, '^(%S+) (%d+) %S+ ?(%S*)')
  return state, tonumber(head), tag
end

local function is_settled(state) return byte(state) == 115 end

local function write_header(header, wakes, state, head, tag)
  local next = call('ZRANGE', wakes, 0, 0, 'WITHSCORES')[2] or '-'
  call('SET', header, string.format('%s %.0f %s %s', state, head, next, tag))
end

local function unsettle(header, log, wakes, head, now)
  call('DEL', log)
  write_header(header, wakes, 'u' .. now, math.max(head + 1, tonumber(now)), 'u' .. now)
end
