--- Received frames, straight out of the kernel's ring: a buffer points into its slot and freeing it gives the slot back.
local ffi = require "ffi"
local kernel = require "softmoon.kernel"
local shared = require "softmoon.shared"
local socket = require "softmoon.socket"
require "packet" -- struct softmoon_buf

local band = bit.band
local ring = {}
ring.__index = ring

local TP_STATUS_USER = 1

-- How long to poll before sleeping. Longer than the gap between frames at 20 kpps, so that under load no frame pays for
-- a wake-up.
local SPIN_NS = kernel.hasOneCpu() and 0 or 60e3
-- Signals do not reach a task; a sleeping one looks at the stop flag this often.
local SLICE_NS = 50e6

function ring.map(fd, slots, slotSize)
	local memory = socket.mapRing(fd, slots * slotSize)
	local bufs = ffi.new("struct softmoon_buf[?]", slots)
	for i = 0, slots - 1 do
		bufs[i].slot = ffi.cast("struct softmoon_slot*", memory + i * slotSize)
	end
	return setmetatable({ fd = fd, slots = slots, bufs = bufs, head = 0, counters = nil }, ring)
end

--- Move up to `limit` received frames into `array`; returns how many.
function ring:take(array, limit, counters)
	local bufs, slots, head = self.bufs, self.slots, self.head
	local n, bytes = 0, 0
	while n < limit do
		local buf = bufs[head]
		local slot = buf.slot
		-- a slot that the program still holds also reads as ours: the ring has come round
		if band(slot.tp_status, TP_STATUS_USER) == 0 or buf.held ~= 0 then
			break
		end
		buf.held = 1
		buf.data = ffi.cast("uint8_t*", slot) + slot.tp_mac
		buf.pkt_len, buf.data_len = slot.tp_snaplen, slot.tp_snaplen
		bytes = bytes + slot.tp_len
		array[n] = buf
		n = n + 1
		head = head + 1
		if head == slots then head = 0 end
	end
	if n > 0 then
		self.head = head
		counters.frames = counters.frames + n
		counters.bytes = counters.bytes + bytes + 4 * n
	end
	return n
end

--- As take, but waits up to `maxWaitUs` for the first frame: polling at first, then asleep.
function ring:takeWithin(array, limit, counters, maxWaitUs, spinNs)
	local n = self:take(array, limit, counters)
	if n > 0 or maxWaitUs <= 0 then
		return n
	end
	local start = kernel.nanoseconds()
	local deadline, spinUntil = start + maxWaitUs * 1e3, start + (spinNs or SPIN_NS)
	local now = start
	while now < deadline do
		if now >= spinUntil then
			if not shared.running() then
				return 0
			end
			kernel.wait(self.fd, kernel.POLLIN, math.min(deadline - now, SLICE_NS))
		end
		n = self:take(array, limit, counters)
		if n > 0 then
			return n
		end
		now = kernel.nanoseconds()
	end
	return 0
end

return ring
