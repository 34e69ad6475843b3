--- Devices and their queues: a device is one interface, named by the --dpdk-config file.
local ffi = require "ffi"
local log = require "log"
local Ring = require "softmoon.ring"
local Sender = require "softmoon.sender"
local shared = require "softmoon.shared"
local socket = require "softmoon.socket"
local strict = require "softmoon.strict"
local kernel = require "softmoon.kernel"
require "utils"

local mod = {}

-- Room for 40 ms of 100 kpps while the generator is off the CPU.
local RING_SLOTS = 4096
local LINK_WAIT_S = 9

local device = strict({}, "device:")
local txQueue = strict({}, "txQueue:")
local rxQueue = strict({}, "rxQueue:")
device.__index, txQueue.__index, rxQueue.__index = device, txQueue, rxQueue

local ports = {}   -- what is known of each port before and after it is configured, plain data
local devices = {} -- device objects of this task by port

local function sameQueue(a, b) return a.id == b.id and a.qid == b.qid end
device.__eq = function(a, b) return a.id == b.id end
txQueue.__eq, rxQueue.__eq = sameQueue, sameQueue

function device:__tostring() return ("[Device: id=%d]"):format(self.id) end
function txQueue:__tostring() return ("[TxQueue: id=%d, qid=%d]"):format(self.id, self.qid) end
function rxQueue:__tostring() return ("[RxQueue: id=%d, qid=%d]"):format(self.id, self.qid) end
function device:__serialize() return ("require'device'.get(%d)"):format(self.id) end
function txQueue:__serialize() return ("require'device'.get(%d):getTxQueue(%d)"):format(self.id, self.qid) end
function rxQueue:__serialize() return ("require'device'.get(%d):getRxQueue(%d)"):format(self.id, self.qid) end

--- Look up the interfaces that are to be port 0, 1, ...
function mod.probe(interfaces)
	for i, name in ipairs(interfaces) do
		local interface = socket.interface(name)
		if not interface then
			error(("softmoon: interface '%s' of port %d does not exist in this network namespace"):format(name, i - 1), 0)
		end
		interface.name, interface.port = name, i - 1
		ports[i - 1] = interface
	end
end

--- The ports as plain data, and in another task: know them from that.
function mod.describe() return ports end
function mod.adopt(known) ports = known end

function mod.get(id)
	if not devices[id] then
		devices[id] = setmetatable({ id = id, rxQueues = {}, txQueues = {} }, device)
	end
	return devices[id]
end

local function checkCount(n, kind)
	if n < 1 or n > shared.MAX_QUEUES then
		log:fatal("softmoon: %d %s queues are not supported, only 1 to %d", n, kind, shared.MAX_QUEUES)
	end
end

--- Configure a port. Of the real call's settings those about hardware are ignored. One more, which MoonGen ignores:
-- `etherTypes`, the frame types that are received and counted (default all).
function mod.config(args)
	local port = ports[args.port]
	if not port then
		log:fatal("there are only %d ports, tried to configure port id %s", table.maxn(ports) + (ports[0] and 1 or 0),
			tostring(args.port))
	end
	if port.configured then
		log:warn("Device %d already configured, skipping initialization", args.port)
		return mod.get(args.port)
	end
	local rxQueues, txQueues = args.rxQueues or 1, args.txQueues or 1
	checkCount(rxQueues, "rx")
	checkCount(txQueues, "tx")
	port.slots = RING_SLOTS
	port.slotSize = port.mtu <= 1800 and 2048 or 2 ^ math.ceil(math.log(port.mtu + 200) / math.log(2))
	port.rxQueues, port.txQueues, port.senders = rxQueues, txQueues, {}
	port.receiver = socket.openReceiver(port, port.slots, port.slotSize, args.etherTypes)
	for qid = 0, txQueues - 1 do
		port.senders[qid] = Sender.open(port)
	end
	port.configured = true
	return mod.get(args.port)
end

--- Wait up to 9 s for the links of all configured devices; returns how many are up.
function mod.waitForLinks()
	log:info("Waiting for devices to come up...")
	local deadline, up = kernel.seconds() + LINK_WAIT_S, 0
	for id = 0, table.maxn(ports) do
		if ports[id] and ports[id].configured then
			while not socket.isUp(ports[id].name) and kernel.seconds() < deadline and shared.running() do
				kernel.sleep(20e6)
			end
			local link = mod.get(id):getLinkStatus()
			up = up + (link.status and 1 or 0)
			log:info("Device %d (%s) is %s: full-duplex %d MBit/s", id, ports[id].mac, link.status and "up" or "DOWN", link.speed)
		end
	end
	log:info("%s", green(up == 1 and "%d device is up." or "%d devices are up.", up))
	return up
end

--- The speed is the one that MoonGen's af_packet driver tells of every interface.
function device:getLinkStatus()
	return { status = socket.isUp(ports[self.id].name), duplexAutoneg = false, duplex = true, speed = 10000 }
end

function device:getMacString() return ports[self.id].mac end
function device:getMac(number) return parseMacAddress(ports[self.id].mac, number) end

local function queue(self, list, class, qid, count)
	if not list[qid] then
		if qid < 0 or qid >= count then
			log:fatal("%s has no queue %d", tostring(self), qid)
		end
		list[qid] = setmetatable({ id = self.id, qid = qid, dev = self }, class)
	end
	return list[qid]
end

function device:getTxQueue(qid) return queue(self, self.txQueues, txQueue, qid, ports[self.id].txQueues or 0) end
function device:getRxQueue(qid)
	local own = queue(self, self.rxQueues, rxQueue, qid, ports[self.id].rxQueues or 0)
	own.alwaysEmpty = qid > 0
	return own
end

local function total(queues)
	local frames, bytes = 0, 0
	for i = 0, shared.MAX_QUEUES - 1 do
		frames, bytes = frames + queues[i].frames, bytes + queues[i].bytes
	end
	return frames, bytes
end

--- Frames and bytes (with CRC) that the kernel accepted.
function device:getTxStats()
	return total(shared.port(self.id).tx)
end

--- Frames and bytes (with CRC) that arrived, those included that found the receive ring full: they are not the loss of
-- what is measured.
function device:getRxStats()
	local counters = shared.port(self.id)
	local frames, bytes = total(counters.rx)
	return frames + counters.missed, bytes
end

function device:clearRxStats() end

-- Two facts that MoonGen's devices do not have, so that programs can tell: every received frame carries the time of its
-- arrival (see arrivalCycles), and only receive queue 0 ever gets frames.
device.stampsArrival = true
rxQueue.alwaysEmpty = false

-- Same text and same consequence as MoonGen on a device without these.
function device:enableTxTimestamps() log:fatal("tx timestamping is not supported by the hardware or driver") end
function device:enableRxTimestamps() log:fatal("rx timestamping is not supported by the hardware or driver") end
function device:setRate() log:warn("global rate limiting is not supported by the hardware or driver") end
function txQueue:enableTimestamps() self.dev:enableTxTimestamps(self) end
function rxQueue:enableTimestamps() self.dev:enableRxTimestamps(self) end

--- No hardware, no limit: a warning, as MoonGen.
function txQueue:setRate(rate)
	log:warn("Per-queue rate limit is not supported on this device, setting per-device rate limit to %d Mbit/s instead", rate)
	self.dev:setRate(rate)
end

local function sender(self)
	local own = rawget(self, "sender")
	if not own then
		own = Sender.new(ports[self.id].senders[self.qid], shared.port(self.id).tx[self.qid])
		self.sender = own
	end
	return own
end

--- Send the first n buffers and take them; returns how many the kernel accepted. All, unless nothing moved for 0.1 s.
function txQueue:sendN(bufs, n)
	local accepted = sender(self):send(bufs.array, n)
	for i = 0, n - 1 do
		bufs.array[i]:free()
	end
	return accepted
end

function txQueue:send(bufs) return self:sendN(bufs, bufs.size) end

local uint64Pointer = ffi.typeof("uint64_t*")

--- Send the first buffer with the cycle counter at `offset` (default byte 48). Returns 1, or 0 when it was not accepted.
function txQueue:sendWithTimestamp(bufs, offset)
	local buf = bufs.array[0]
	local accepted = sender(self):sendStamped(buf, ffi.cast(uint64Pointer, buf.data + (offset or 48)))
	buf:free()
	return accepted
end

-- The one ring belongs to queue 0; other queues exist, because programs configure them, and stay empty.
local function ringOf(self)
	local own = rawget(self, "ring")
	if own == nil then
		local port = ports[self.id]
		own = self.qid == 0 and Ring.map(port.receiver, port.slots, port.slotSize)
		self.ring, self.counters = own, shared.port(self.id).rx[self.qid]
		kernel.monotonicOf(0, 0) -- so that the first frame finds the clocks compared
	end
	return own
end

local function receive(self, bufs, maxWaitUs, spinNs)
	local ring = ringOf(self)
	if ring then
		return ring:takeWithin(bufs.array, bufs.size, self.counters, maxWaitUs, spinNs)
	elseif maxWaitUs > 0 then
		kernel.sleep(math.min(maxWaitUs, 1e5) * 1e3)
	end
	return 0
end

--- Received frames, at most #bufs; waits up to maxWait microseconds (default: until the run stops) for the first one.
function rxQueue:tryRecv(bufs, maxWait) return receive(self, bufs, maxWait or math.huge) end
function rxQueue:tryRecvIdle(bufs, maxWait) return receive(self, bufs, maxWait or math.huge, 0) end
function rxQueue:recv(bufs) return receive(self, bufs, math.huge) end

--- As recv, with the cycle count of each frame's arrival in its udata64.
function rxQueue:recvWithTimestamps(bufs)
	local n = self:recv(bufs)
	for i = 0, n - 1 do
		bufs.array[i].udata64 = self:arrivalCycles(bufs.array[i])
	end
	return n
end

--- The cycle count at which the kernel received the frame: free of the time that passed until the program asked.
-- MoonGen has no such call.
function rxQueue:arrivalCycles(buf)
	local slot = buf.slot
	return ffi.cast("uint64_t", kernel.monotonicOf(slot.tp_sec, slot.tp_nsec))
end

--- At the end of a task: say how many frames its ring had no room for.
function mod.reportDrops()
	for id, dev in pairs(devices) do
		local receiver = rawget(dev.rxQueues, 0)
		if receiver and rawget(receiver, "ring") then
			local drops = socket.drops(ports[id].receiver)
			if drops > 0 then
				local counters = shared.port(id)
				counters.missed = counters.missed + drops
				log:warn("Device %d: %d frames came back but found the receive ring full: counted as received, but no "
					.. "latency samples", id, drops)
			end
		end
	end
end

mod.__devicePrototype, mod.__txQueuePrototype, mod.__rxQueuePrototype = device, txQueue, rxQueue

return strict(mod, "device.")
