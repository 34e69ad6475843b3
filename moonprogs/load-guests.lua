--- The guests that the load goes to: their addresses and weights, and whose turn it is.
local ffi   = require "ffi"
local sizes = require "load-sizes"

local guests = {}

local MAX_GUESTS = 1000

-- The largest weight that sums of thousands hold to the digit.
local MAX_WEIGHT = 1e12

-- Longer cycles of turns would take long to compute and more than the CPU's cache to read.
local LONGEST_CYCLE = 65536

-- Raises a message for users.
local function complain(format, ...)
	error(format:format(...), 0)
end

local function numberOf(text)
	if not text:match("^%x%x:%x%x:%x%x:%x%x:%x%x:%x%x$") then
		complain("mac must look like 52:54:00:12:34:56, not '%s'", text)
	end
	return tonumber((text:gsub(":", "")), 16)
end

local function addressOf(number)
	local text = ("%012x"):format(number)
	return (text:gsub("(%x%x)", "%1:", 5))
end

local function isGroup(number)
	return math.floor(number / 2 ^ 40) % 2 == 1
end

-- Addresses that follow `first`, which counts as one.
local function addressesFrom(first, count)
	local list = {}
	for i = 0, count - 1 do
		local number = first + i
		if number >= 2 ^ 48 or isGroup(number) then
			complain("count %d is too much: only %d addresses from %s on are unicast addresses", count, i, addressOf(first))
		end
		list[i + 1] = addressOf(number)
	end
	return list
end

--- The addresses of a text, a list with commas, or with `count` that many from the one on. Raises a message for users.
function guests.parseAddresses(text, count)
	local list, known = {}, {}
	for part in (text .. ","):gmatch("([^,]*),") do
		local number = numberOf(part)
		if isGroup(number) and text:find(",", 1, true) then
			complain("mac must be the address of one machine, not the group address '%s'", part)
		elseif known[number] then
			complain("mac has '%s' twice: guests are told apart by their addresses", part)
		end
		known[number], list[#list + 1] = true, number
	end
	if count and #list > 1 then
		complain("count goes with one address, the first; there are %d", #list)
	elseif #list > MAX_GUESTS then
		complain("mac must not have more than %d addresses; there are %d", MAX_GUESTS, #list)
	elseif count then
		return addressesFrom(list[1], count)
	end
	for i, number in ipairs(list) do
		list[i] = addressOf(number)
	end
	return list
end

-- The numbers of a text like 3:1.
local function weightsOf(text)
	local weights = {}
	for part in (text .. ":"):gmatch("([^:]*):") do
		local weight = part:match("^%d+$") and tonumber(part) or 0
		if weight < 1 or weight > MAX_WEIGHT then
			complain("weights must be whole numbers of at least 1, like 3:1, not '%s' in '%s'", part, text)
		end
		weights[#weights + 1] = weight
	end
	return weights
end

--- The weights of `n` guests from a text like 3:1, without a common divisor; all 1 without a text. Raises a message for users.
function guests.parseWeights(text, n)
	local weights = weightsOf(text or ("1:"):rep(n):sub(1, -2))
	if #weights ~= n then
		complain("weights must be one number for each address: there are %d numbers in '%s' for %d addresses", #weights, text, n)
	end
	local reduced, cycle = sizes.reduce(weights)
	if cycle > LONGEST_CYCLE then
		complain("weights must not sum to more than %d after division by what divides all: '%s' sum to %.0f", LONGEST_CYCLE,
			text, cycle)
	end
	return reduced
end

--- One cycle of turns, an array of uint16_t with the indices of the guests, and its length: smooth weighted round robin, as
-- nginx has it. In a cycle each guest has as many turns as its weight, spread as evenly as can be.
function guests.newCycle(weights)
	local n, length = #weights, 0
	local weight, credit = ffi.new("double[?]", n), ffi.new("double[?]", n)
	for i = 0, n - 1 do
		weight[i] = weights[i + 1]
		length = length + weight[i]
	end
	local turns = ffi.new("uint16_t[?]", length)
	for turn = 0, length - 1 do
		local best = 0
		for i = 0, n - 1 do
			credit[i] = credit[i] + weight[i]
			if credit[i] > credit[best] then
				best = i
			end
		end
		credit[best] = credit[best] - length
		turns[turn] = best
	end
	return turns, length
end

return guests
