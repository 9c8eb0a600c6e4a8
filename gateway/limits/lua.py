"""The script that keeps a budget's books on Redis. It says what `reckoning` and `books` say, and reports the tally back.

All keys of a budget are of one slot:

    :tally   hash   `NAME` and `NAME@` of each limit over a period (used, and the period's begin); reserved: `usd`, `tokens`,
                    `calls`; `now`
    :minute  hash   `requests:SECOND` and `tokens:SECOND`: what each of the last seconds used
    :holds   hash   hold -> "number usd tokens second"
    :live    zset   hold -> when its lease ends
    :lapsed  zset   hold -> when it lapsed; its row in :holds stays until it is forgotten

ARGV: operation, now ("" for the server's clock), lease, limits ("unit/per amount unit/per amount …"), then those of the operation:
reserve HOLD NUMBER USD TOKENS · undo HOLD NUMBER USD TOKENS (what was there before; NUMBER 0: nothing) · settle HOLD USD TOKENS ·
renew HOLD… · standing.
Answers {verdict, now, used begin for each limit over a period…, usd, tokens, calls, number of the hold, its usd, its tokens,
its second, then pairs of :minute}, with verdict 1 for granted or done, and 0 for refused or for nothing to settle.
"""

import hashlib

BOOKS = b"""
local tally, minute, holds, live, lapsed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local operation, lease, hold = ARGV[1], tonumber(ARGV[3]), ARGV[5]
local MINUTE, LAPSED, BACK, KEEP = 61, 86400, 3600, 3456000

local function whole(number) return string.format('%.0f', number) end
local function moment(number) return string.format('%.6f', number) end

local now
if ARGV[2] == '' then
    local time = redis.call('TIME')
    now = tonumber(time[1]) + tonumber(time[2]) / 1000000
else
    now = tonumber(ARGV[2])
end
local before = tonumber(redis.call('HGET', tally, 'now'))
if before and now < before and before <= now + BACK then now = before end
redis.call('HSET', tally, 'now', moment(now))
local second = math.floor(now)

-- Begin of the running month: civil date of a day number, after Howard Hinnant's `civil_from_days`.
local function month(day)
    local z = day + 719468
    local era = math.floor(z / 146097)
    local doe = z - era * 146097
    local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
    local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
    local mp = math.floor((5 * doy + 2) / 153)
    return day - (doy - math.floor((153 * mp + 2) / 5))
end

local function begin(per)
    if per == 'hour' then return second - second % 3600 end
    local day = math.floor(second / 86400)
    if per == 'day' then return day * 86400 end
    return month(day) * 86400
end

local limits = {}
for unit, per, amount in string.gmatch(ARGV[4], '(%a+)/(%a+) (%d+)') do
    local limit = {unit = unit, per = per, name = unit .. '/' .. per, amount = tonumber(amount), used = 0}
    if per == 'hour' or per == 'day' or per == 'month' then
        limit.begin = begin(per)
        local kept = redis.call('HMGET', tally, limit.name .. '@', limit.name)
        if tonumber(kept[1]) == limit.begin then
            limit.used = tonumber(kept[2])
        else
            redis.call('HSET', tally, limit.name .. '@', whole(limit.begin), limit.name, '0')
        end
    end
    limits[#limits + 1] = limit
end

local seconds, counts = {}, {requests = 0, tokens = 0}
local rows = redis.call('HGETALL', minute)
for at = 1, #rows, 2 do
    local unit, when = string.match(rows[at], '(%a+):(%d+)')
    if tonumber(when) > second - MINUTE then
        counts[unit] = counts[unit] + tonumber(rows[at + 1])
        seconds[rows[at]] = tonumber(rows[at + 1])
    else
        redis.call('HDEL', minute, rows[at])
    end
end

local function count(unit, at, amount)
    if amount ~= 0 then
        local field = unit .. ':' .. whole(at)
        redis.call('HINCRBY', minute, field, whole(amount))
        counts[unit] = counts[unit] + amount
        seconds[field] = (seconds[field] or 0) + amount
        if seconds[field] == 0 then
            redis.call('HDEL', minute, field)
            seconds[field] = nil
        end
    end
end

local sums = redis.call('HMGET', tally, 'usd', 'tokens', 'calls')
local reserved = {usd = tonumber(sums[1]) or 0, tokens = tonumber(sums[2]) or 0, calls = tonumber(sums[3]) or 0}

local function change(usd, tokens, calls)
    reserved.usd, reserved.tokens, reserved.calls = reserved.usd + usd, reserved.tokens + tokens, reserved.calls + calls
    redis.call('HSET', tally, 'usd', whole(reserved.usd), 'tokens', whole(reserved.tokens), 'calls', whole(reserved.calls))
end

local function row(name)
    local text = redis.call('HGET', holds, name)
    if not text then return nil end
    local number, usd, tokens, at = string.match(text, '(%d+) (%d+) (%d+) (%d+)')
    return {number = tonumber(number), usd = tonumber(usd), tokens = tonumber(tokens), second = tonumber(at)}
end

for _, name in ipairs(redis.call('ZRANGEBYSCORE', live, '-inf', moment(now))) do
    local gone = row(name)
    redis.call('ZREM', live, name)
    redis.call('ZADD', lapsed, moment(now), name)
    change(-gone.usd, -gone.tokens, -1)
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', lapsed, '-inf', '(' .. moment(now - LAPSED))) do
    redis.call('ZREM', lapsed, name)
    redis.call('HDEL', holds, name)
end

local verdict, held = 1, nil
if operation == 'reserve' then
    local number, claim = tonumber(ARGV[6]), {usd = tonumber(ARGV[7]), tokens = tonumber(ARGV[8])}
    held = redis.call('ZSCORE', live, hold) and row(hold) or nil
    if not held or held.number < number then
        for _, limit in ipairs(limits) do
            local used, more, of = limit.used, 0, 0
            if limit.per == 'parallel' then
                more, of = held and 0 or 1, reserved.calls
            elseif limit.unit == 'requests' then
                more = number == 1 and 1 or 0
            else
                more, of = claim[limit.unit] - (held and held[limit.unit] or 0), reserved[limit.unit]
            end
            if limit.per == 'minute' then used = counts[limit.unit] end
            if more > 0 and used + of + more > limit.amount then verdict = 0 end
        end
        if verdict == 1 then
            local at = held and held.second or second
            if number == 1 then count('requests', at, 1) end
            change(claim.usd - (held and held.usd or 0), claim.tokens - (held and held.tokens or 0), held and 0 or 1)
            redis.call('HSET', holds, hold, number .. ' ' .. whole(claim.usd) .. ' ' .. whole(claim.tokens) .. ' ' .. whole(at))
            redis.call('ZADD', live, moment(now + lease), hold)
            redis.call('ZREM', lapsed, hold)
        end
    end
elseif operation == 'settle' then
    local gone = row(hold)
    if not gone then
        verdict = 0
    else
        if redis.call('ZREM', live, hold) == 1 then change(-gone.usd, -gone.tokens, -1) end
        redis.call('ZREM', lapsed, hold)
        redis.call('HDEL', holds, hold)
        local spent = {usd = tonumber(ARGV[6]), tokens = tonumber(ARGV[7]), requests = 0}
        for _, limit in ipairs(limits) do
            if limit.begin and spent[limit.unit] > 0 then
                limit.used = limit.used + spent[limit.unit]
                redis.call('HSET', tally, limit.name, whole(limit.used))
            end
        end
        count('tokens', second, spent.tokens)
    end
elseif operation == 'undo' then
    local made, number, usd, tokens = row(hold), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
    if made and number == 0 then
        if redis.call('ZREM', live, hold) == 1 then change(-made.usd, -made.tokens, -1) end
        redis.call('HDEL', holds, hold)
        if made.number == 1 and seconds['requests:' .. whole(made.second)] then count('requests', made.second, -1) end
    elseif made then
        change(usd - made.usd, tokens - made.tokens, 0)
        redis.call('HSET', holds, hold, number .. ' ' .. whole(usd) .. ' ' .. whole(tokens) .. ' ' .. whole(made.second))
    end
elseif operation == 'renew' then
    for at = 5, #ARGV do
        local found = row(ARGV[at])
        if found then
            if redis.call('ZREM', lapsed, ARGV[at]) == 1 then change(found.usd, found.tokens, 1) end
            redis.call('ZADD', live, moment(now + lease), ARGV[at])
        end
    end
end

for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, KEEP) end

local answer = {verdict, moment(now)}
for _, limit in ipairs(limits) do
    if limit.begin then
        answer[#answer + 1] = whole(limit.used)
        answer[#answer + 1] = whole(limit.begin)
    end
end
for _, amount in ipairs({reserved.usd, reserved.tokens, reserved.calls}) do answer[#answer + 1] = whole(amount) end
local fields = held and {held.number, held.usd, held.tokens, held.second} or {0, 0, 0, 0}
for _, amount in ipairs(fields) do answer[#answer + 1] = whole(amount) end
for field, amount in pairs(seconds) do
    answer[#answer + 1] = field
    answer[#answer + 1] = whole(amount)
end
return answer
"""
BOOKS_SHA = hashlib.sha1(BOOKS, usedforsecurity=False).hexdigest()  # Redis names a script by it
