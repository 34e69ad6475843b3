--- Distributions of frame sizes: their text, their mean, and decks of sizes to draw from.
--
-- A distribution is { sizes = {...}, weights = {...} }: sizes in bytes without CRC, ascending; weights are whole numbers
-- above 0 without a common divisor.
local ffi     = require "ffi"
local frame   = require "load-frame"
local shuffle = require "load-shuffle"

local floor, max = math.floor, math.max

local sizes = {}

-- A simple mix of what the Internet carries, 7:4:1 of small, middle and full Ethernet frames.
local IMIX = "60:7+590:4+1514:1"

-- A deck of about so many sizes repeats rarely enough to look drawn at random, and stays in the CPU's cache for many
-- guests. One that is exact may be larger, up to a limit beyond which counts are rounded: a measured file has millions.
local USUAL_DECK, LARGEST_DECK = 4096, 65536

-- A deck is shuffled in parts of at least so many sizes, each of which holds every size in proportion: also what a short run
-- sends, or one guest of many gets, is then in proportion but for part of a part.
local SMALLEST_PART = 16

-- The largest weight that sums of thousands hold to the digit.
local MAX_WEIGHT = 1e12

local function gcd(a, b)
	while b > 0 do
		a, b = b, a % b
	end
	return a
end

--- Divide a list of whole numbers by what divides them all; returns a new list and its sum.
function sizes.reduce(numbers)
	local divisor, reduced, sum = 0, {}, 0
	for _, number in ipairs(numbers) do
		divisor = gcd(divisor, number)
	end
	for i, number in ipairs(numbers) do
		reduced[i] = number / divisor
		sum = sum + reduced[i]
	end
	return reduced, sum
end

-- Raises a message for users, as all that follows.
local function complain(format, ...)
	error(format:format(...), 0)
end

local function sizeOf(text, where)
	local size = tonumber(text)
	if not size or size % 1 ~= 0 or size < frame.MIN_SIZE or size > frame.MAX_SIZE then
		complain("size must be a whole number from %d to %d, not '%s'%s", frame.MIN_SIZE, frame.MAX_SIZE, text, where)
	end
	return size
end

-- The weight after the size, in `part` of `entry`.
local function weightOf(text, part, entry)
	local weight = text:match("^%d+$") and tonumber(text)
	if not weight or weight > MAX_WEIGHT then
		complain("size must have whole numbers from 0 to %.0f for weights, like 60:7, not '%s' in '%s'", MAX_WEIGHT, part, entry)
	end
	return weight
end

local function distribution(entry)
	if not entry:find("[:+]") and entry ~= "" then
		return { sizes = { sizeOf(entry, "") }, weights = { 1 } }
	end
	local total = {}
	for part in (entry .. "+"):gmatch("([^+]*)%+") do
		local size, weight = part:match("^([^:]*):([^:]*)$")
		if not size then
			complain("size must be like 60, imix, 60:7+590:4+1514:1 or @FILE, not '%s' in '%s'", part, entry)
		end
		size = sizeOf(size, (" in '%s'"):format(entry))
		total[size] = (total[size] or 0) + weightOf(weight, part, entry)
	end
	local own = { sizes = {}, weights = {} }
	for size, weight in pairs(total) do
		own.sizes[#own.sizes + 1] = weight > 0 and size or nil
	end
	if #own.sizes == 0 then
		complain("size needs a weight above 0, not only 0 as in '%s'", entry)
	end
	table.sort(own.sizes)
	for i, size in ipairs(own.sizes) do
		own.weights[i] = total[size]
	end
	own.weights = sizes.reduce(own.weights)
	return own
end

local function contentOf(path)
	local file, problem = io.open(path)
	local text
	if file then
		text, problem = file:read("*a") -- a directory opens, but does not read
		file:close()
	end
	return text or complain("size cannot be read from the file: %s", problem or path)
end

--- The distributions of a text: entries joined with `~`, each `60`, `imix` or `60:7+590:4+1514:1`; or `@FILE` with such a
-- text. Spaces and newlines count like `+`. Raises a message for users.
function sizes.parse(text)
	local path = text:match("^@(.*)$")
	text = (path and contentOf(path) or text):gsub("%s*([~+])%s*", "%1"):gsub("^%s+", ""):gsub("%s+$", ""):gsub("%s+", "+")
	local parsed = {}
	for entry in (text .. "~"):gmatch("([^~]*)~") do
		parsed[#parsed + 1] = distribution(entry == "imix" and IMIX or entry)
	end
	return parsed
end

--- The mean size.
function sizes.mean(distribution)
	local sum, weights = 0, 0
	for i, size in ipairs(distribution.sizes) do
		sum, weights = sum + size * distribution.weights[i], weights + distribution.weights[i]
	end
	return sum / weights
end

--- The mean size of the load's frames: that of the guests' distributions, by the guests' weights.
function sizes.meanOfLoad(args)
	local sum, weights = 0, 0
	for guest, weight in ipairs(args.weights) do
		local own = args.sizes[(guest - 1) % #args.sizes + 1]
		sum, weights = sum + weight * sizes.mean(own), weights + weight
	end
	return sum / weights
end

--- The largest size of all distributions.
function sizes.largest(distributions)
	local largest = 0
	for _, own in ipairs(distributions) do
		largest = max(largest, own.sizes[#own.sizes])
	end
	return largest
end

-- Whole numbers in the proportion of `weights` that sum to `sum`, by largest remainder: each is less than 1 off.
local function apportion(weights, total, sum)
	local counts, order, left = {}, {}, sum
	local remainders = {}
	for i, weight in ipairs(weights) do
		local share = weight / total * sum
		counts[i] = floor(share)
		remainders[i], order[i], left = share - counts[i], i, left - counts[i]
	end
	table.sort(order, function(a, b)
		return remainders[a] > remainders[b] or remainders[a] == remainders[b] and a < b
	end)
	for i = 1, left do
		counts[order[i]] = counts[order[i]] + 1
	end
	return counts
end

--- What a deck is made of: how often each size is in one part of it, exactly in proportion where the weights sum to no more
-- than 65536, and the number of parts.
function sizes.parts(distribution)
	local weights, total = sizes.reduce(distribution.weights)
	if total > LARGEST_DECK then
		return apportion(weights, total, LARGEST_DECK), 1
	elseif #weights == 1 then
		return weights, 1
	end
	local copies, counts = math.ceil(SMALLEST_PART / total), {}
	for i, weight in ipairs(weights) do
		counts[i] = weight * copies
	end
	return counts, max(1, floor(USUAL_DECK / (total * copies)))
end

-- Write one part at `position`; returns the position after it.
local function writePart(deck, position, sizesOf, counts)
	for i, count in ipairs(counts) do
		for _ = 1, count do
			deck[position] = sizesOf[i]
			position = position + 1
		end
	end
	return position
end

local function sum(numbers)
	local total = 0
	for _, number in ipairs(numbers) do
		total = total + number
	end
	return total
end

-- Of each distribution what a part of its deck is made of, and the number of parts; and where each guest's deck begins in
-- the array of all, its end included.
local function layOut(args)
	local guests, entries, first = #args.addresses, #args.sizes, { 0 }
	local counts, parts = {}, {}
	for entry, own in ipairs(args.sizes) do
		counts[entry], parts[entry] = sizes.parts(own)
	end
	for guest = 1, guests do
		local entry = (guest - 1) % entries + 1
		first[guest + 1] = first[guest] + sum(counts[entry]) * parts[entry]
	end
	return counts, parts, first
end

--- How many sizes the decks of all guests hold.
function sizes.inDecks(args)
	local _, _, first = layOut(args)
	return first[#first]
end

--- Decks of the sizes of every guest in one array of uint16_t, each in an order of its own that depends only on the seed,
-- the task and the guest; and an array of where each guest's deck begins, the end of the last one included.
function sizes.newDecks(args, task)
	local guests, entries = #args.addresses, #args.sizes
	local counts, parts, first = layOut(args)
	local decks = ffi.new("uint16_t[?]", first[guests + 1])
	for guest = 1, guests do
		local entry, position = (guest - 1) % entries + 1, first[guest]
		for part = 1, parts[entry] do
			local after = writePart(decks, position, args.sizes[entry].sizes, counts[entry])
			shuffle(decks, position, after - position, args.seed, task, guest, part)
			position = after
		end
	end
	return decks, ffi.new("int32_t[?]", guests + 1, first)
end

return sizes
