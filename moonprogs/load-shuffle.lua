--- Shuffling that is the same on every machine: a generator of its own, in whole numbers of 32 bits only.
local bit = require "bit"

local tobit, bxor, lshift, rshift = bit.tobit, bit.bxor, bit.lshift, bit.rshift

-- A state for the generator from several numbers: "one at a time", by Bob Jenkins (Dr. Dobb's, 1997).
local function hash(...)
	local state = 0
	for i = 1, select("#", ...) do
		state = tobit(state + (select(i, ...)))
		state = tobit(state + lshift(state, 10))
		state = bxor(state, rshift(state, 6))
	end
	state = tobit(state + lshift(state, 3))
	state = bxor(state, rshift(state, 11))
	state = tobit(state + lshift(state, 15))
	return state ~= 0 and state or 1 -- the generator would stay at 0
end

-- The next state: xorshift, by George Marsaglia (Journal of Statistical Software 8, 2003).
local function step(state)
	state = bxor(state, lshift(state, 13))
	state = bxor(state, rshift(state, 17))
	return bxor(state, lshift(state, 5))
end

--- Shuffle `n` elements of an array from index `first` on (Fisher-Yates). The order depends only on the numbers of the seed.
return function(array, first, n, ...)
	local state = hash(...)
	for i = n - 1, 1, -1 do
		state = step(state)
		local j = math.floor((state % 2 ^ 32) * 2 ^ -32 * (i + 1))
		array[first + i], array[first + j] = array[first + j], array[first + i]
	end
end
