--- Sending the load of one task: the right frames at the right times.
local mg       = require "moongen"
local frame    = require "load-frame"
local sequence = require "load-sequence"
local sizes    = require "load-sizes"

local floor, min = math.floor, math.min

local sender = {}

-- Frames sent at once when that many are due, which is so only at rates that single frames cannot keep up with, and after
-- this task was off the CPU.
local BURST = 64

-- Sleeping between frames is only right where they are stamped on arrival. It ends this much late as a rule; where CPUs
-- are shared, whoever sleeps is still back sooner than who polls and is then made to wait for others.
local WAKE_UP, SHORTEST_SLEEP, LONGEST_SLEEP = 20e-6, 10e-6, 1e-3

-- After a pause that was not planned, frames follow at no more than this multiple of the rate: one after the other without
-- a gap, they would be a load that nobody asked for, and their loss would be our doing.
local CATCH_UP = 2

-- Frames due before the end but late by no more than this, and by no more than this share of the run, are still sent.
local GRACE, GRACE_SHARE = 20e-3, 0.01

local Sender = {}
Sender.__index = Sender

--- The sender of one of args.threads load tasks, numbered from 0, which share the rate evenly. `unlimited`: as many frames
-- as the queue takes, because the NIC itself keeps the rate.
function sender.new(dev, args, task, unlimited)
	local rate, whole = args.rate * 1e3 / args.threads, floor(args.rate * 1e3 * args.time + 0.5)
	local pool = frame.newPool(dev, args, frame.LOAD, sizes.largest(args.sizes))
	return setmetatable({
		queue = dev:getTxQueue(task), duration = args.time, rate = unlimited and math.huge or rate,
		total = unlimited and math.huge or floor(whole * (task + 1) / args.threads) - floor(whole * task / args.threads),
		sequence = sequence.new(args, task), burst = pool:bufArray(BURST), single = pool:bufArray(1),
		-- where every frame is stamped on arrival a task may sleep between frames
		mayRest = dev.stampsArrival,
		sent = 0, largestLag = 0, notBefore = 0,
		start = args.start, began = 0, ended = 0, -- when to begin, where that is agreed upon; then when it did
	}, Sender)
end

-- Not even touched, frames that are all the same go out at the rate of the NIC.
local function sendSame(self, bufs, size)
	bufs:alloc(size)
	local accepted = self.queue:send(bufs)
	self.sequence.totals:addSeveral(0, size, accepted)
	self.sent = self.sent + accepted
end

local function sendArray(self, bufs, n)
	local drawn = self.sequence
	if drawn.only then
		return sendSame(self, bufs, drawn.only)
	end
	bufs:alloc(frame.MIN_SIZE)
	for i = 1, n do
		drawn:fill(bufs[i], drawn.load)
	end
	local accepted = self.queue:send(bufs)
	for _ = accepted + 1, n do
		drawn:putBack(drawn.load)
	end
	self.sent = self.sent + accepted
end

--- Send what is due now, at most a burst.
function Sender:sendDue(due)
	if due >= BURST then
		sendArray(self, self.burst, BURST)
	else
		sendArray(self, self.single, 1)
	end
end

-- Give the CPU away until shortly before the next frame is due.
local function rest(self, elapsed)
	local gap = self.sent / self.rate - elapsed - WAKE_UP
	if gap >= SHORTEST_SLEEP then
		mg.sleepMicrosIdle(min(gap, LONGEST_SLEEP) * 1e6)
	end
end

-- Frame i is due at i/rate.
local function dueAt(self, elapsed)
	if self.rate == math.huge then
		return BURST
	end
	return min(floor(elapsed * self.rate) + 1, self.total) - self.sent
end

local function isOver(self, elapsed)
	if elapsed < self.duration then
		return false
	end
	local missing, grace = self.total - self.sent, min(GRACE, GRACE_SHARE * self.duration)
	return missing == 0 or self.rate == math.huge or missing > grace * self.rate + 1 or elapsed >= self.duration + grace
end

local function awaitStart(start)
	while start and mg.getTime() < start and mg.running() do
		mg.sleepMicrosIdle(min(start - mg.getTime(), 1e-3) * 1e6)
	end
end

--- Offer the load for the run time, or until the program is stopped. What else the task does between frames: `other` may
-- send a frame of its own in place of what is due, by other:sendInstead(elapsed), and is asked after each step,
-- by other:receive(), to take what has arrived.
function Sender:offer(other)
	awaitStart(self.start)
	local start, elapsed = mg.getTime(), 0
	while not isOver(self, elapsed) and mg.running() do
		local due = dueAt(self, elapsed)
		if due >= 1 and elapsed >= self.notBefore then
			local before = self.sent
			self.largestLag = math.max(self.largestLag, due)
			if not (other and other:sendInstead(elapsed)) then
				self:sendDue(due)
			end
			self.notBefore = elapsed + (self.sent - before) / (CATCH_UP * self.rate)
		elseif due < 1 and self.mayRest then
			rest(self, elapsed)
		end
		if other then
			other:receive()
		end
		elapsed = mg.getTime() - start
	end
	self.began, self.ended = start, start + elapsed
end

return sender
