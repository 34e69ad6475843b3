--- Load in software: frames at the right times, and what comes back. Used by the tasks of l2-load-latency.lua.
local mg     = require "moongen"
local memory = require "memory"
local log    = require "log"
local ffi    = require "ffi"

local floor, min, max = math.floor, math.min, math.max
local uint32 = ffi.typeof("uint32_t*")

local load = {}

local ETHERTYPE_LOAD, ETHERTYPE_SAMPLE = 0x1234, 0x88f7

-- Frames sent at once when that many are due, which is so only at rates that single frames cannot keep up with, and after
-- this task was off the CPU.
local BURST = 64

-- Layout of a test frame, all within the smallest one: run tag at byte 16, send time at 48 (where MoonGen's
-- sendWithTimestamp puts it), sequence number of a sample at 56. In units of 4 bytes:
local TAG_WORD, SEQUENCE_WORD = 4, 14

-- Enough samples for a p99.9 from seconds of a run; few enough to cost the load nothing and to fit memory in long ones.
local SAMPLES_PER_SECOND, MAX_SAMPLES = 10000, 2000000

-- Sleeping between frames is only right where they are stamped on arrival. It ends this much late as a rule; where CPUs
-- are shared, whoever sleeps is still back sooner than who polls and is then made to wait for others.
local WAKE_UP, SHORTEST_SLEEP, LONGEST_SLEEP = 20e-6, 10e-6, 1e-3

-- After a pause that was not planned, frames follow at no more than this multiple of the rate: one after the other without
-- a gap, they would be a load that nobody asked for, and their loss would be our doing.
local CATCH_UP = 2

-- Frames due before the end but late by no more than this, and by no more than this share of the run, are still sent.
local GRACE, GRACE_SHARE = 20e-3, 0.01

local function newPool(dev, args, etherType, tag, n)
	return memory.createMemPool{
		n = n,
		bufSize = args.size <= 1514 and 2048 or floor((args.size + 1023) / 1024) * 1024 + 1024,
		func = function(buf)
			buf:getEthernetPacket():fill{ ethSrc = dev, ethDst = args.mac, ethType = etherType }
			ffi.cast(uint32, buf:getData())[TAG_WORD] = tag
		end
	}
end

--- Send load at `rate` frames per second (math.huge: as fast as the queue takes them) for args.time; returns the number.
function load.send(queue, args, rate)
	local bufs = newPool(queue, args, ETHERTYPE_LOAD, 0):bufArray(BURST)
	local single = newPool(queue, args, ETHERTYPE_LOAD, 0):bufArray(1)
	local start, sent = mg.getTime(), 0
	local total = rate * args.time
	while mg.running() do
		local elapsed = mg.getTime() - start
		if elapsed >= args.time then break end
		local due = min(floor(elapsed * rate) + 1, total) - sent
		if due >= BURST then
			bufs:alloc(args.size)
			sent = sent + queue:send(bufs)
		elseif due >= 1 then
			single:alloc(args.size)
			sent = sent + queue:send(single)
		end
	end
	return sent
end

local Run = {}
Run.__index = Run

--- Everything for one run in software mode: queues, buffers, and the record of the samples.
function load.newRun(dev, args)
	local rate = args.rate * 1e3 / args.threads
	local samplesPerSecond = min(SAMPLES_PER_SECOND, MAX_SAMPLES / args.time)
	local every = max(1, math.ceil(rate / samplesPerSecond))
	local maxSamples = math.ceil(rate * args.time / every) + 1
	local tag = floor(os.time() * 1e3 + mg.getTime() * 1e6) % 2 ^ 32
	local rxQueues = { dev:getRxQueue(0), dev:getRxQueue(1) }
	return setmetatable({
		args = args, rate = rate, every = every, tag = tag, maxSamples = maxSamples,
		txQueue = dev:getTxQueue(0), rxQueues = rxQueues,
		burst = newPool(dev, args, ETHERTYPE_LOAD, tag):bufArray(BURST),
		single = newPool(dev, args, ETHERTYPE_LOAD, tag):bufArray(1),
		sample = newPool(dev, args, ETHERTYPE_SAMPLE, tag):bufArray(1),
		rxBufs = memory.bufArray(128),
		-- outside Lua's tables, which would have to grow in the middle of the run
		latency = ffi.new("double[?]", maxSamples), waiting = ffi.new("uint8_t[?]", maxSamples),
		nsPerCycle = 1e9 / mg.getCyclesFrequency(),
		-- where every frame is stamped on arrival this task may sleep between frames
		stampsArrival = dev.stampsArrival,
		sent = 0, received = 0, samplesSent = 0, samplesBack = 0, samplesLate = 0, samplesImpossible = 0, largestLag = 0,
	}, Run)
end

function Run:sendSample()
	local sequence, sample = self.samplesSent, self.sample
	sample:alloc(self.args.size)
	ffi.cast(uint32, sample[1]:getData())[SEQUENCE_WORD] = sequence
	-- MoonGen returns nothing and has sent it
	local accepted = self.txQueue:sendWithTimestamp(sample) or 1
	if accepted == 1 then
		self.waiting[sequence] = 1
		self.samplesSent = sequence + 1
		self.sent = self.sent + 1
	end
end

-- A sample came back. Its sequence number is from the wire: believe nothing.
function Run:takeSample(buf, now)
	local words = ffi.cast(uint32, buf:getData())
	local sequence = words[SEQUENCE_WORD]
	if words[TAG_WORD] ~= self.tag or sequence >= self.samplesSent or self.waiting[sequence] == 0 then
		return
	end
	self.waiting[sequence] = 0
	local latency = (tonumber(now) - tonumber(buf:getSoftwareTxTimestamp())) * self.nsPerCycle
	if latency < 0 then
		self.samplesImpossible = self.samplesImpossible + 1
	elseif latency <= self.args.max_wait * 1e9 then
		self.latency[self.samplesBack] = latency
		self.samplesBack = self.samplesBack + 1
	else
		self.samplesLate = self.samplesLate + 1
	end
end

--- Take back what has arrived on one queue, waiting up to `waitUs` for it; returns the number of frames.
function Run:receive(queue, waitUs)
	local bufs = self.rxBufs
	local n = queue:tryRecv(bufs, waitUs)
	if n == 0 then
		return 0
	end
	local now = mg.getCycles()
	local stamped = self.stampsArrival
	for i = 1, n do
		local buf = bufs[i]
		local etherType = buf:getEthernetPacket().eth:getType()
		if etherType == ETHERTYPE_LOAD then
			self.received = self.received + 1
		elseif etherType == ETHERTYPE_SAMPLE then
			self.received = self.received + 1
			self:takeSample(buf, stamped and queue:arrivalCycles(buf) or now)
		end
	end
	bufs:free(n)
	return n
end

-- One step of the load: whatever is due now, at most a burst.
function Run:sendDue(due, elapsed)
	if due > self.largestLag then
		self.largestLag = due
	end
	-- by frames, so that samples are evenly among them; by time where fewer frames than offered can be sent
	local sampleIsDue = self.sent >= self.nextSample or elapsed >= self.nextSampleTime
	if sampleIsDue and self.samplesSent < self.maxSamples then
		self:sendSample()
		self.nextSample = self.sent - 1 + self.every
		self.nextSampleTime = elapsed + 1.5 * self.every / self.rate
	elseif due >= BURST then
		self.burst:alloc(self.args.size)
		self.sent = self.sent + self.txQueue:send(self.burst)
	else
		self.single:alloc(self.args.size)
		self.sent = self.sent + self.txQueue:send(self.single)
	end
end

-- Give the CPU away until shortly before the next frame is due.
function Run:rest(elapsed)
	local gap = self.sent / self.rate - elapsed - WAKE_UP
	if gap >= SHORTEST_SLEEP then
		mg.sleepMicrosIdle(min(gap, LONGEST_SLEEP) * 1e6)
	end
end

--- Offer the load for the run time, or until the program is stopped. Frame i is due at i/rate.
function Run:offer()
	local rate, duration, total = self.rate, self.args.time, floor(self.rate * self.args.time + 0.5)
	local first, second = self.rxQueues[1], self.rxQueues[2]
	self.nextSample, self.nextSampleTime, self.notBefore = 0, 0, 0
	local grace = min(GRACE, GRACE_SHARE * duration)
	-- what is still there is of an earlier run; and the first look at a queue is slow
	self:receive(first, 0)
	self:receive(second, 0)
	self.received = 0
	local start, elapsed = mg.getTime(), 0
	local function isOver()
		local missing = total - self.sent
		return elapsed >= duration and (missing == 0 or missing > grace * rate + 1 or elapsed >= duration + grace)
	end
	while not isOver() and mg.running() do
		local due = min(floor(elapsed * rate) + 1, total) - self.sent
		if due >= 1 and elapsed >= self.notBefore then
			local before = self.sent
			self:sendDue(due, elapsed)
			self.notBefore = elapsed + (self.sent - before) / (CATCH_UP * rate)
		elseif due < 1 and self.stampsArrival then
			self:rest(elapsed)
		end
		self:receive(first, 0)
		self:receive(second, 0)
		elapsed = mg.getTime() - start
	end
	self.duration = elapsed
end

--- After the last frame: take back what is still under way. Ends when all is back, when nothing came for args.drain
-- seconds, or after args.max_wait.
function Run:drain()
	local before = self.received
	local start = mg.getTime()
	local lastFrame, now = start, start
	local quiet, longest = self.args.drain, max(self.args.drain, self.args.max_wait)
	-- other load tasks' frames come back here too, so only a lone task knows when all is back
	local expected = self.args.threads == 1 and self.sent or math.huge
	while self.received < expected and now - lastFrame < quiet and now - start < longest do
		local n = self:receive(self.rxQueues[2], 0) + self:receive(self.rxQueues[1], 100)
		now = mg.getTime()
		if n > 0 then
			lastFrame = now
		end
	end
	self.drained, self.drainTime = self.received - before, now - start
end

--- Say what was sent and received, the drained frames apart.
function Run:summarize()
	log:info("Test frames: sent %d in %.3f s, received %d, %d of them in a drain of %.3f s", self.sent, self.duration,
		self.received, self.drained, self.drainTime)
	log:info("Latency samples: sent %d, back %d, later than %g s %d, lost %d; largest lag of the load %d frames",
		self.samplesSent, self.samplesBack, self.args.max_wait, self.samplesLate,
		self.samplesSent - self.samplesBack - self.samplesLate - self.samplesImpossible, self.largestLag)
	if self.samplesImpossible > 0 then
		log:warn("%d latency samples are left out: by their time stamps they came back before they were sent",
			self.samplesImpossible)
	end
end

--- Put the samples, in whole nanoseconds, into the histogram; returns their number.
function Run:fill(hist)
	for i = 0, self.samplesBack - 1 do
		hist:update(floor(self.latency[i] + 0.5))
	end
	return self.samplesBack
end

return load
