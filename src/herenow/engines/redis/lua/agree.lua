-- Compares terms with those in the store, then writes ours. Two values agree if they share a word. Returns {term, stored
-- value} of the first that does not agree, or {buckets} as the first node wrote it.
local terms = KEYS[1]
local buckets = ARGV[1] -- then per term: name, value
for i = 2, #ARGV, 2 do
  local found = redis.call('HGET', terms, ARGV[i])
  local agree = not found
  for word in string.gmatch(ARGV[i + 1], '%S+') do
    agree = agree or string.find(' ' .. found .. ' ', ' ' .. word .. ' ', 1, true)
  end
  if not agree then return {ARGV[i], found} end
end
for i = 2, #ARGV, 2 do redis.call('HSET', terms, ARGV[i], ARGV[i + 1]) end
redis.call('HSETNX', terms, 'buckets per shard', buckets)
return {redis.call('HGET', terms, 'buckets per shard')}
