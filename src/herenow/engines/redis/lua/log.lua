-- Reads a shard's log after a cursor. Returns {head, tag of the head, entries}.
local header, log = KEYS[1], KEYS[2]
local after, count = ARGV[1], ARGV[2]
local _, head, tag = read_header(header)
return {string.format('%.0f', head), tag, call('XRANGE', log, '(' .. after .. '-0', '+', 'COUNT', count)}
