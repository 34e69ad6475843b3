--- Load in software: frames at the right times, and what comes back. Used by the tasks of l2-load-latency.lua.
local mg       = require "moongen"
local log      = require "log"
local frame    = require "load-frame"
local receiver = require "load-receiver"
local samples  = require "load-samples"
local sender   = require "load-sender"
local sizes    = require "load-sizes"

local load = {}

-- Enough samples for a p99.9 from seconds of a run; few enough to cost the load nothing and to fit memory in long ones.
local SAMPLES_PER_SECOND, MAX_SAMPLES = 10000, 2000000

local Run = {}
Run.__index = Run

--- Everything for one run in software mode: queues, buffers, and the record of the samples. `pipes`: of the other load
-- tasks, which tell on them at their end what they sent.
function load.newRun(dev, args, pipes)
	local ownRate = args.rate * 1e3 / args.threads
	local every = math.max(1, math.ceil(ownRate / math.min(SAMPLES_PER_SECOND, MAX_SAMPLES / args.time)))
	local record = samples.new(math.ceil(ownRate * args.time / every) + 1, #args.addresses, 1e9 / mg.getCyclesFrequency(),
		args.max_wait)
	return setmetatable({
		args = args, pipes = pipes, every = every, nextSample = 0, nextSampleTime = 0, samples = record,
		sender = sender.new(dev, args, 0), receiver = receiver.new(dev, args, record),
		sample = frame.newPool(dev, args, frame.SAMPLE, sizes.largest(args.sizes)):bufArray(1),
		first = dev:getRxQueue(0), second = dev:getRxQueue(1), queues = { dev:getRxQueue(0), dev:getRxQueue(1) },
	}, Run)
end

-- Send a sample; whether it was accepted.
local function sendSample(self)
	local load, sample = self.sender, self.sample
	local drawn = load.sequence
	sample:alloc(frame.MIN_SIZE)
	local guest = drawn:fill(sample[1], drawn.samples)
	self.samples:mark(sample[1])
	-- MoonGen returns nothing and has sent it
	local accepted = load.queue:sendWithTimestamp(sample) or 1
	if accepted == 1 then
		self.samples:add(guest)
		load.sent = load.sent + 1
	else
		drawn:putBack(drawn.samples)
	end
end

--- Asked by the sender: send a sample in place of the next frame, when it is time. By frames, so that samples are evenly
-- among them; by time where fewer frames than offered can be sent.
function Run:sendInstead(elapsed)
	local load = self.sender
	local isDue = load.sent >= self.nextSample or elapsed >= self.nextSampleTime
	if not isDue or self.samples.sent >= self.samples.most then
		return false
	end
	sendSample(self)
	self.nextSample = load.sent - 1 + self.every
	self.nextSampleTime = elapsed + 1.5 * self.every / load.rate
	return true
end

--- Asked by the sender: take what has arrived.
function Run:receive()
	self.receiver:receive(self.first, 0)
	self.receiver:receive(self.second, 0)
end

--- Offer the load and take back what comes of it, to the last frame of all load tasks. Says what was sent and received,
-- the drained frames apart.
function Run:run()
	local sender, receiver = self.sender, self.receiver
	receiver:forget(self.queues)
	sender:offer(self)
	local before, sentAll = receiver.received, mg.getTime()
	local others, first, last, lag, known = receiver:awaitEnds(self.pipes, self.queues, 0)
	-- of several tasks from the first frame to the last: no second in which only some of them sent passes for one of all
	local seconds = math.max(sender.ended, last) - math.min(sender.began, first)
	receiver:drain(self.queues, known and sender.sent + others or math.huge)
	log:info("Test frames: sent %d in %.3f s, received %d, %d of them in a drain of %.3f s", sender.sent + others,
		seconds, receiver.received, receiver.received - before, mg.getTime() - sentAll)
	self.samples:summarize(math.max(sender.largestLag, lag))
end

--- What was sent and what came back, by guest; and the number of frames of any type that were seen.
function Run:totals()
	return self.sender.sequence.totals:lists(), self.receiver:lists(), self.receiver.taken
end

--- Offer one task's share of the load, nothing else. With a pipe, tells on it what was sent. Returns that by guest.
function load.send(dev, args, task, hardwareRate, pipe)
	local sender = sender.new(dev, args, task, hardwareRate)
	sender:offer()
	if pipe then
		pipe:send(sender.sent, sender.began, sender.ended, sender.largestLag)
	end
	return sender.sequence.totals:lists()
end

--- Receive all load frames of one run whose load other tasks send; returns what came back by guest, and the number of
-- frames of any type that were seen.
function load.count(dev, args, pipes)
	local receiver, queues = receiver.new(dev, args), { dev:getRxQueue(0) }
	receiver:forget(queues)
	local frames, _, _, _, known = receiver:awaitEnds(pipes, queues, args.time)
	receiver:drain(queues, known and frames or math.huge)
	return receiver:lists(), receiver.taken
end

return load
