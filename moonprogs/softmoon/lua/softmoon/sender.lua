--- Frames to the kernel: reports what the driver accepted, never what was merely handed over.
--
-- One frame goes by send(). Several go through a memory-mapped transmit ring, one system call for all of them. The ring
-- has virtio headers, of which only the header length is used, set to that of the whole frame: otherwise the kernel would
-- attach our pages to the packet and copy them again on their way, which costs more than everything else.
local ffi = require "ffi"
local kernel = require "softmoon.kernel"
local socket = require "softmoon.socket"

local C, errno = ffi.C, ffi.errno
local sender = {}
sender.__index = sender

local SLOTS, SLOT_SIZE = 256, 2048
local VNET_HEADER, DATA_OFFSET = 10, 32 -- sizes of struct virtio_net_hdr and struct tpacket2_hdr
local LARGEST = SLOT_SIZE - DATA_OFFSET - VNET_HEADER
local AVAILABLE, SEND_REQUEST, WRONG_FORMAT = 0, 1, 4

-- a driver without room says ENOBUFS, and there is no event to wait for
local RETRY_NS = 20e3

--- A sender on two sockets of one interface: `fds.single` and `fds.ring`.
function sender.new(fds, counters)
	local memory = socket.mapRing(fds.ring, SLOTS * SLOT_SIZE)
	local slots = ffi.new("struct softmoon_slot*[?]", SLOTS)
	for i = 0, SLOTS - 1 do
		slots[i] = ffi.cast("struct softmoon_slot*", memory + i * SLOT_SIZE)
	end
	return setmetatable({ fd = fds.single, ring = fds.ring, counters = counters, slots = slots, head = 0 }, sender)
end

--- Open what `new` wants.
function sender.open(interface)
	return { single = socket.openSender(interface), ring = socket.openSender(interface, SLOTS, SLOT_SIZE) }
end

-- Put frames into free slots until one does not fit; returns how many.
local function fill(self, array, first, n)
	local slots, index, filled = self.slots, self.head, 0
	while filled < n do
		local slot, buf = slots[index], array[first + filled]
		local length = buf.pkt_len
		if slot.tp_status ~= AVAILABLE or length > LARGEST then
			break
		end
		local header = ffi.cast("uint8_t*", slot) + DATA_OFFSET
		ffi.cast("uint16_t*", header)[1] = length
		ffi.copy(header + VNET_HEADER, buf.data, length)
		slot.tp_len = length + VNET_HEADER
		slot.tp_status = SEND_REQUEST
		filled = filled + 1
		index = index + 1
		if index == SLOTS then index = 0 end
	end
	return filled
end

-- After the system call: pass by the slots that the kernel took, and take back the others; returns the number taken.
local function settle(self, filled)
	local slots, index, accepted, taking = self.slots, self.head, 0, true
	for _ = 1, filled do
		local slot = slots[index]
		local status = slot.tp_status
		taking = taking and status ~= SEND_REQUEST and status ~= WRONG_FORMAT
		if taking then
			accepted = accepted + 1
		else
			slot.tp_status = AVAILABLE
		end
		index = index + 1
		if index == SLOTS then index = 0 end
	end
	self.head = (self.head + accepted) % SLOTS
	return accepted
end

-- Returns the number of accepted frames and, when these are not all that were filled in, why.
local function sendSeveral(self, array, first, n)
	local filled = fill(self, array, first, n)
	if filled == 0 then
		return 0, kernel.EAGAIN
	end
	local result = C.send(self.ring, nil, 0, kernel.MSG_DONTWAIT)
	local problem = result < 0 and errno() or kernel.EAGAIN
	local accepted = settle(self, filled)
	return accepted, accepted < filled and problem or nil
end

local function sendSingle(self, buf, flags)
	if C.send(self.fd, buf.data, buf.pkt_len, flags) >= 0 then
		return 1, nil
	end
	return 0, errno()
end

-- Wait for room, or raise when more room would not help. False when the time is over.
local function waitForRoom(problem, giveUpAt)
	if problem == kernel.EAGAIN or problem == kernel.ENOBUFS then
		kernel.sleep(RETRY_NS)
	elseif problem ~= kernel.EINTR then
		error("softmoon: cannot send: " .. kernel.errorText(problem), 0)
	end
	return kernel.seconds() < giveUpAt
end

local function count(counters, frames, bytes)
	counters.frames = counters.frames + frames
	counters.bytes = counters.bytes + bytes
end

--- Send n frames and wait until they are accepted; returns how many were, fewer only when nothing moved for 0.1 s.
function sender:send(array, n)
	local done, bytes, giveUpAt = 0, 0, nil
	while done < n do
		local accepted, problem
		if n - done > 1 and array[done].pkt_len <= LARGEST then
			accepted, problem = sendSeveral(self, array, done, n - done)
		else
			accepted, problem = sendSingle(self, array[done], 0)
		end
		for i = done, done + accepted - 1 do
			bytes = bytes + array[i].pkt_len + 4
		end
		done = done + accepted
		if accepted > 0 then
			giveUpAt = nil
		end
		if problem then
			giveUpAt = giveUpAt or kernel.seconds() + socket.SEND_TIMEOUT_S
			if not waitForRoom(problem, giveUpAt) then break end
		end
	end
	count(self.counters, done, bytes)
	return done
end

--- Send one frame with the cycle counter at `stamp`, read anew for every attempt; returns 1, or 0 as `send`.
function sender:sendStamped(buf, stamp)
	local giveUpAt
	while true do
		stamp[0] = kernel.nanoseconds()
		-- not to wait in the kernel for room: the time has been written
		local accepted, problem = sendSingle(self, buf, kernel.MSG_DONTWAIT)
		if accepted == 1 then
			count(self.counters, 1, buf.pkt_len + 4)
			return 1
		end
		giveUpAt = giveUpAt or kernel.seconds() + socket.SEND_TIMEOUT_S
		if not waitForRoom(problem, giveUpAt) then
			return 0
		end
	end
end

return sender
