-- What the scripts of one shard share. How a value is laid out is told in redis_codec.py, what the keys are in redis_keys.py.
local call, byte, sub, unpack_number = redis.call, string.byte, string.sub, struct.unpack
local NUMBER = {'>I1', '>I2', '>I3', '>I4', '>I5', '>I6'}

local function wake_of(value)
  local n = byte(value) % 128
  if n == 0 then return nil end
  local wake = unpack_number(NUMBER[n], value, 2)
  if n == 6 then return wake end
  return wake + unpack_number('>I6', value, n + 4)
end

local function body_of(tails, field, value)
  local n = byte(value)
  if n < 128 then return sub(value, n + 2) end
  if #value == n - 127 then return '' end
  return call('HGET', tails, field)
end

-- prefix '': nothing is left of the user
local function store(bucket, tails, field, old, prefix, body)
  local had_tail = old and byte(old) >= 128
  if prefix == '' then
    call('HDEL', bucket, field)
  elseif byte(prefix) >= 128 then
    call('HSET', tails, field, body)
    call('HSET', bucket, field, prefix)
    return
  else
    call('HSET', bucket, field, prefix .. body)
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

-- After a value was stored: keep the bucket's earliest wake-up. Only when the earliest itself goes, the others are looked at.
local function move_wake(wakes, bucket, was, is)
  if was == is then return false end
  local name = string.match(bucket, '%d+$')
  local first = tonumber(call('ZSCORE', wakes, name) or nil)
  if is and (not first or is < first) then
    call('ZADD', wakes, is, name)
  elseif was == first then
    first = earliest(bucket)
    if first then call('ZADD', wakes, first, name) else call('ZREM', wakes, name) end
  else
    return false
  end
  return true
end

local function read_header(header)
  local found = call('GET', header)
  if not found then return '?', 0 end
  local state, head = string.match(found, '^(%S+) (%d+)')
  return state, tonumber(head)
end

local function write_header(header, wakes, state, head)
  local next = call('ZRANGE', wakes, 0, 0, 'WITHSCORES')[2] or '-'
  call('SET', header, string.format('%s %.0f %s', state, head, next))
end

local function unsettle(header, log, wakes, head, now)
  call('DEL', log)
  write_header(header, wakes, 'u' .. now, math.max(head + 1, tonumber(now)))
end
