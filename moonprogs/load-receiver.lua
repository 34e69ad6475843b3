--- Taking back the frames that return, and telling whose they are.
local mg       = require "moongen"
local memory   = require "memory"
local log      = require "log"
local ffi      = require "ffi"
local frame    = require "load-frame"
local sequence = require "load-sequence"

local uint32 = ffi.typeof("uint32_t*")
local LOAD, SAMPLE, TAG_WORD, GUEST_WORD = frame.LOAD, frame.SAMPLE, frame.TAG_WORD, frame.GUEST_WORD

-- Another load task may have begun this much later, and ends as much later.
local LATEST_END = 10

local receiver = {}

local Receiver = {}
Receiver.__index = Receiver

--- `samples`, where given, gets the frames that are latency samples: samples:take(buf, words, guest, cycles).
function receiver.new(dev, args, samples)
	return setmetatable({
		tag = args.tag, guests = #args.addresses, totals = sequence.newTotals(args),
		quiet = args.drain, longest = math.max(args.drain, args.max_wait),
		samples = samples, stamped = dev.stampsArrival, bufs = memory.bufArray(128),
		-- of any type, test frames, those of them that are of no guest of this run
		taken = 0, received = 0, foreign = 0,
	}, Receiver)
end

-- Count a test frame. What is in it is from the wire: believe nothing.
local function count(self, buf, isSample, cycles)
	self.received = self.received + 1
	local words = ffi.cast(uint32, buf:getData())
	local guest = words[GUEST_WORD]
	if words[TAG_WORD] ~= self.tag or guest >= self.guests then
		self.foreign = self.foreign + 1
		return
	end
	self.totals:add(guest, buf:getSize())
	if isSample and self.samples then
		self.samples:take(buf, words, guest, cycles)
	end
end

--- Take back what has arrived on one queue, waiting up to `waitUs` for it; returns the number of frames.
function Receiver:receive(queue, waitUs)
	local bufs = self.bufs
	local n = queue:tryRecv(bufs, waitUs)
	if n == 0 then
		return 0
	end
	self.taken = self.taken + n
	local now = mg.getCycles()
	local stamped = self.stamped
	for i = 1, n do
		local buf = bufs[i]
		local etherType = buf:getEthernetPacket().eth:getType()
		if etherType == LOAD then
			count(self, buf, false)
		elseif etherType == SAMPLE then
			count(self, buf, true, stamped and queue:arrivalCycles(buf) or now)
		end
	end
	bufs:free(n)
	return n
end

--- Before the first frame: what is still there is of an earlier run; and the first look at a queue is slow.
function Receiver:forget(queues)
	for _, queue in ipairs(queues) do
		self:receive(queue, 0)
	end
	self.received = self.received - self.foreign -- another load task may be ahead
	self.foreign = 0
end

--- Wait for the ends of other load tasks, due in `seconds`: each tells on a pipe of its own its frames, when it began and
-- ended, and its largest lag. Receives meanwhile. Returns the sum of the frames, when the first began and the last ended, the
-- largest lag, and whether all have told.
function Receiver:awaitEnds(pipes, queues, seconds)
	local frames, first, last, lag, waiting = 0, math.huge, 0, 0, #pipes
	local deadline = mg.getTime() + seconds + LATEST_END
	while waiting > 0 and mg.getTime() < deadline do
		for _, pipe in ipairs(pipes) do
			local sent, began, ended, late = pipe:tryRecv(0)
			if sent then
				waiting, frames, lag = waiting - 1, frames + sent, math.max(lag, late)
				first, last = math.min(first, began), math.max(last, ended)
			end
		end
		self:receiveAll(queues, 100)
	end
	if waiting > 0 then
		log:warn("%d load tasks did not tell in time what they sent: test frames are told without theirs", waiting)
	end
	return frames, first, last, lag, waiting == 0
end

--- Take back what has arrived on all queues, waiting up to `waitUs` on the first one; returns the number of frames.
function Receiver:receiveAll(queues, waitUs)
	local n = 0
	for i = #queues, 1, -1 do
		n = n + self:receive(queues[i], i == 1 and waitUs or 0)
	end
	return n
end

--- After the last frame: take back what is still under way. Ends when `expected` frames are back, when nothing came for
-- args.drain seconds, or after args.max_wait.
function Receiver:drain(queues, expected)
	local start = mg.getTime()
	local lastFrame, now = start, start
	while self.received < expected and now - lastFrame < self.quiet and now - start < self.longest do
		local n = self:receiveAll(queues, 100)
		now = mg.getTime()
		if n > 0 then
			lastFrame = now
		end
	end
end

--- What came back of each guest, as plain lists. Warns of frames that are of none of several.
function Receiver:lists()
	if self.guests > 1 and self.foreign > 0 then
		log:warn("%d of the received frames are of no guest of this run: they count in the total only", self.foreign)
	end
	return self.totals:lists()
end

return receiver
