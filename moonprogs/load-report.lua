--- What a run gives: the histogram of all latency samples, and with several guests what belongs to each.
local histogram = require "histogram"
local log       = require "log"

local report = {}

local Histograms = {}
Histograms.__index = Histograms

--- The histogram of all samples and, with several guests, one of each.
function report.newHistograms(args)
	local n = #args.addresses
	local self = setmetatable({ all = histogram:new(), args = args, guests = {}, samples = {}, total = 0 }, Histograms)
	for guest = 1, n > 1 and n or 0 do
		self.guests[guest], self.samples[guest] = {}, 0
	end
	return self
end

--- Count a sample of a guest, numbered from 1; nil, a sample that was lost, is ignored.
function Histograms:update(guest, latency)
	if not latency then
		return
	end
	self.all:update(latency)
	self.total = self.total + 1
	local own = self.guests[guest]
	if own then
		own[latency] = (own[latency] or 0) + 1
		self.samples[guest] = self.samples[guest] + 1
	end
end

-- Write `guest,nanoseconds,count` per line, ascending.
local function saveGuests(path, guests)
	log:info("Saving the guests' histograms to '%s'", path)
	local file = assert(io.open(path, "w"))
	for guest, counts in ipairs(guests) do
		local values = {}
		for value in pairs(counts) do
			values[#values + 1] = value
		end
		table.sort(values)
		for _, value in ipairs(values) do
			assert(file:write(("%d,%s,%d\n"):format(guest, value, counts[value])))
		end
	end
	assert(file:close())
end

--- Print and save what there is.
function Histograms:finish()
	if self.total == 0 then
		return
	end
	self.all:print()
	self.all:save(self.args.file)
	if self.args.guests_file and #self.guests > 0 then
		saveGuests(self.args.guests_file, self.guests)
	end
end

-- The frames and bytes of a guest, over the tasks' results that have some of a kind: `sent` or `received`.
local function sums(results, kind, guest)
	local frames, bytes = 0, 0
	for _, result in ipairs(results) do
		local own = result[kind]
		if own then
			frames, bytes = frames + own.frames[guest], bytes + own.bytes[guest]
		end
	end
	return frames, bytes
end

--- Say what each guest was sent and gave back, from the results of all tasks and the list of the guests' latency samples.
function report.guests(args, results, samples)
	for guest, address in ipairs(args.addresses) do
		local sent, sentBytes = sums(results, "sent", guest)
		local received, receivedBytes = sums(results, "received", guest)
		log:info("Guest %d (%s): sent %d frames with %d bytes, received %d frames with %d bytes (incl. CRC), %d latency samples",
			guest, address, sent, sentBytes, received, receivedBytes, samples[guest])
	end
end

return report
