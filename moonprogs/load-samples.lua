--- Latency samples in software: which are under way, and what those that came back took.
local log   = require "log"
local ffi   = require "ffi"
local frame = require "load-frame"

local SEQUENCE_WORD = frame.SEQUENCE_WORD

local samples = {}

local Samples = {}
Samples.__index = Samples

--- A record of at most `most` samples. `nsPerCycle` is that of the time stamps, `maxWait` in seconds.
function samples.new(most, guests, nsPerCycle, maxWait)
	return setmetatable({
		most = most, guests = guests, nsPerCycle = nsPerCycle, maxWait = maxWait,
		-- outside Lua's tables, which would have to grow in the middle of the run. Which guest is waited for, counted from
		-- 1, by sequence number; then the latencies in ns and the guests, counted from 0, in the order of their return.
		waiting = ffi.new("uint16_t[?]", most), latency = ffi.new("double[?]", most), guest = ffi.new("uint16_t[?]", most),
		sent = 0, back = 0, late = 0, impossible = 0,
	}, Samples)
end

--- Number a frame that is about to be sent as a sample.
function Samples:mark(buf)
	ffi.cast("uint32_t*", buf:getData())[SEQUENCE_WORD] = self.sent
end

--- The frame that was marked last was sent.
function Samples:add(guest)
	self.waiting[self.sent] = guest + 1
	self.sent = self.sent + 1
end

--- A sample came back. Its sequence number is from the wire: believe nothing.
function Samples:take(buf, words, guest, cycles)
	local number = words[SEQUENCE_WORD]
	if number >= self.sent or self.waiting[number] ~= guest + 1 then
		return
	end
	self.waiting[number] = 0
	local latency = (tonumber(cycles) - tonumber(buf:getSoftwareTxTimestamp())) * self.nsPerCycle
	if latency < 0 then
		self.impossible = self.impossible + 1
	elseif latency <= self.maxWait * 1e9 then
		self.latency[self.back] = latency
		self.guest[self.back] = guest
		self.back = self.back + 1
	else
		self.late = self.late + 1
	end
end

--- Say what became of the samples.
function Samples:summarize(largestLag)
	log:info("Latency samples: sent %d, back %d, later than %g s %d, lost %d; largest lag of the load %d frames",
		self.sent, self.back, self.maxWait, self.late, self.sent - self.back - self.late - self.impossible, largestLag)
	if self.impossible > 0 then
		log:warn("%d latency samples are left out: by their time stamps they came back before they were sent",
			self.impossible)
	end
end

--- Put the samples, in whole nanoseconds, into a record of histograms (load-report.lua).
function Samples:fill(histograms)
	for i = 0, self.back - 1 do
		histograms:update(self.guest[i] + 1, math.floor(self.latency[i] + 0.5))
	end
end

return samples
