-- Compares terms with those in the store, then adds the new ones. Returns {term, stored value} of the first that differs, or
-- {buckets} as the first node wrote it.
local terms = KEYS[1]
local buckets = ARGV[1] -- then per term: name, value
for i = 2, #ARGV, 2 do
  local found = redis.call('HGET', terms, ARGV[i])
  if found and found ~= ARGV[i + 1] then return {ARGV[i], found} end
end
for i = 2, #ARGV, 2 do redis.call('HSET', terms, ARGV[i], ARGV[i + 1]) end
redis.call('HSETNX', terms, 'buckets per shard', buckets)
return {redis.call('HGET', terms, 'buckets per shard')}
