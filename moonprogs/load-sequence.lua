--- Which frame comes next: to which guest, and how large. Two runs with the same arguments have the same sequence.
local ffi    = require "ffi"
local frame  = require "load-frame"
local guests = require "load-guests"
local sizes  = require "load-sizes"

local uint16, uint32 = ffi.typeof("uint16_t*"), ffi.typeof("uint32_t*")
local GUEST_WORD = frame.GUEST_WORD
local CRC = 4

local sequence = {}

local Totals = {}
Totals.__index = Totals

--- Frames, and bytes with CRC, by guest.
function sequence.newTotals(args)
	local n = #args.addresses
	return setmetatable({ guests = n, frames = ffi.new("double[?]", n), bytes = ffi.new("double[?]", n) }, Totals)
end

function Totals:add(guest, size)
	self:addSeveral(guest, size, 1)
end

function Totals:addSeveral(guest, size, n)
	self.frames[guest] = self.frames[guest] + n
	self.bytes[guest] = self.bytes[guest] + n * (size + CRC)
end

function Totals:remove(guest, size)
	self.frames[guest] = self.frames[guest] - 1
	self.bytes[guest] = self.bytes[guest] - size - CRC
end

--- As plain lists, which another task can be given.
function Totals:lists()
	local lists = { frames = {}, bytes = {} }
	for i = 1, self.guests do
		lists.frames[i], lists.bytes[i] = self.frames[i - 1], self.bytes[i - 1]
	end
	return lists
end

local Sequence = {}
Sequence.__index = Sequence

-- The addresses as they are in a frame: their first four bytes, and their last two.
local function addressWords(addresses)
	local heads, tails = ffi.new("uint32_t[?]", #addresses), ffi.new("uint16_t[?]", #addresses)
	local bytes = ffi.new("uint8_t[8]")
	for i, address in ipairs(addresses) do
		local position = 0
		for digits in address:gmatch("%x%x") do
			bytes[position] = tonumber(digits, 16)
			position = position + 1
		end
		heads[i - 1], tails[i - 1] = ffi.cast(uint32, bytes)[0], ffi.cast(uint16, bytes + 4)[0]
	end
	return heads, tails
end

-- A place in the cycle, in an array: the JIT compiler gives up on fields of tables that change between fractions and whole
-- numbers, which to it a sum and the constant 0 do.
local function position(turn)
	return ffi.new("int32_t[1]", turn)
end

--- The sequence of one task, numbered from 0. All that is read for a frame lies in plain arrays: no frame makes garbage.
function sequence.new(args, task)
	local n = #args.addresses
	local turns, cycle = guests.newCycle(args.weights)
	local decks, first = sizes.newDecks(args, task)
	local heads, tails = addressWords(args.addresses)
	return setmetatable({
		-- the size where every frame is the same one, as its pool has made it: nothing needs to be drawn
		only = n == 1 and first[1] == 1 and decks[0] or nil,
		turns = turns, cycle = cycle, decks = decks, first = first, drawn = ffi.new("int32_t[?]", n),
		heads = heads, tails = tails,
		-- Whose turn it is. Samples have turns of their own: every so many turns of the load might always be the same guest's.
		-- The tasks begin at different guests, so that they do not all send to one at a time.
		load = position(math.floor(cycle * task / args.threads) % cycle), samples = position(0),
		totals = sequence.newTotals(args), -- of what was drawn and not put back
	}, Sequence)
end

--- Draw: whose turn it is, and the size of the frame. `turns` is either `load` or `samples` of this sequence.
function Sequence:draw(turns)
	local guest = self.turns[turns[0]]
	turns[0] = turns[0] + 1
	if turns[0] == self.cycle then
		turns[0] = 0
	end
	local drawn, first = self.drawn, self.first[guest]
	local size = self.decks[first + drawn[guest]]
	drawn[guest] = drawn[guest] + 1
	if first + drawn[guest] == self.first[guest + 1] then
		drawn[guest] = 0
	end
	self.totals:add(guest, size)
	return guest, size
end

--- Put back what was drawn last: it was not sent, and comes next.
function Sequence:putBack(turns)
	turns[0] = (turns[0] > 0 and turns[0] or self.cycle) - 1
	local guest = self.turns[turns[0]]
	local drawn, first = self.drawn, self.first[guest]
	drawn[guest] = (drawn[guest] > 0 and drawn[guest] or self.first[guest + 1] - first) - 1
	self.totals:remove(guest, self.decks[first + drawn[guest]])
end

--- Write the address of a guest into a frame.
function Sequence:address(buf, guest)
	local data = buf:getData()
	ffi.cast(uint32, data)[0] = self.heads[guest]
	ffi.cast(uint16, data)[2] = self.tails[guest]
end

--- Make a buffer the next frame; returns the index of its guest.
function Sequence:fill(buf, turns)
	local guest, size = self:draw(turns)
	buf:setSize(size)
	self:address(buf, guest)
	ffi.cast(uint32, buf:getData())[GUEST_WORD] = guest
	return guest
end

return sequence
