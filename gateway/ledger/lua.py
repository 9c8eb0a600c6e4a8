"""The script that appends an entry on Redis, and its name there. Text only: nothing here talks to a server."""

import hashlib

APPEND = b"""
-- KEYS[1] the stream. ARGV: key prefix; the gateway that appends; hex digests that must be stored, 64 characters each,
-- joined; how many bodies are given; digest and body of each; then id, type, snapshot and JSON of each record.
-- Returns the digests that are missing, having written nothing, or 1. The hash `open` holds the calls that began and
-- have no end yet, with the gateway that each is under way in.
local prefix, gateway, names = ARGV[1], ARGV[2], ARGV[3]
local keys = {}
for at = 1, #names, 64 do
  keys[#keys + 1] = prefix .. 'body:' .. string.sub(names, at, at + 63)
end
local missing = {}
for first = 1, #keys, 1000 do  -- unpack has a limit
  local last = math.min(first + 999, #keys)
  if redis.call('EXISTS', unpack(keys, first, last)) < last - first + 1 then
    for at = first, last do
      if redis.call('EXISTS', keys[at]) == 0 then
        missing[#missing + 1] = string.sub(names, at * 64 - 63, at * 64)
      end
    end
  end
end
if #missing > 0 then
  return missing
end
local at = 5
for _ = 1, tonumber(ARGV[4]) do
  redis.call('SET', prefix .. 'body:' .. ARGV[at], ARGV[at + 1], 'NX')
  at = at + 2
end
while at < #ARGV do
  local snapshot = prefix .. 'snapshot:' .. ARGV[at + 2]
  if redis.call('HEXISTS', snapshot, ARGV[at]) == 0 then
    local place = redis.call('XADD', KEYS[1], '*', 'id', ARGV[at], 'type', ARGV[at + 1], 'record', ARGV[at + 3])
    redis.call('HSET', snapshot, ARGV[at], place)
    if ARGV[at + 1] == 'CallFinished' then
      redis.call('HDEL', prefix .. 'open', ARGV[at + 2])
    elseif ARGV[at + 1] == 'PromptComposed' or ARGV[at + 1] == 'PassedThrough' then
      redis.call('HSET', prefix .. 'open', ARGV[at + 2], gateway)
    end
  end
  at = at + 4
end
return 1
"""
APPEND_SHA = hashlib.sha1(APPEND, usedforsecurity=False).hexdigest()
