--- Counters of devices, printed once a second and at the end in MoonGen's form.
local log = require "log"
local mg = require "moongen"
local strict = require "softmoon.strict"
require "colors"

local stats = { tasks = {} }
local counter = strict({}, "counter:")
counter.__index = counter

local COLOR = { RX = "cyan", TX = "blue" }
local CSV_HEADER = "Time,Device,Direction,PacketRate,Mbit,MbitWithFraming,TotalPackets,TotalBytes\n"
local STATS_TASK = "__SOFTMOON_STATS_TASK"

-- printf shows the sign of a nan, MoonGen's readers do not expect one
local function number(format, value)
	return value == value and format:format(value) or "nan"
end

local plain, csv = {}, {}

function plain.init() end

local function plainHead(self)
	return ("%s[%s] %s%s: "):format(getColorCode(COLOR[self.direction]), self.name, self.direction, getColorCode())
end

function plain.update(self, mpps, mbit, wireMbit)
	self.file:write(plainHead(self), ("%.2f Mpps, %.0f Mbit/s (%.0f Mbit/s with framing)\n"):format(mpps, mbit, wireMbit))
end

function plain.final(self)
	self.file:write(plainHead(self), ("%s (StdDev %s) Mpps, %s (StdDev %s) Mbit/s (%s Mbit/s with framing), "):format(
		number("%.2f", self.mpps.avg), number("%.2f", self.mpps.stdDev), number("%.0f", self.mbit.avg),
		number("%.0f", self.mbit.stdDev), number("%.0f", self.wireMbit.avg)),
		("total %d packets with %d bytes (incl. CRC)\n"):format(self.total, self.totalBytes))
end

local headersWritten = {}

function csv.init(self)
	if not headersWritten[self.file] then
		headersWritten[self.file] = true
		self.file:write(CSV_HEADER)
	end
end

function csv.update(self, mpps, mbit, wireMbit)
	self.file:write(("%d,%s,%s,%s,%s,%s,%s,%s\n"):format(time(), self.name, self.direction, mpps, mbit, wireMbit,
		self.total, self.totalBytes))
end

function csv.final(self)
	csv.update(self, self.mpps.avg, self.mbit.avg, self.wireMbit.avg)
end

local formats = { plain = plain, csv = csv, CSV = csv }

-- Mean and deviation of all but the first and last value, which cover no whole second.
local function summarize(values)
	local n, sum, squares = #values - 2, 0, 0
	for i = 2, #values - 1 do
		sum = sum + values[i]
	end
	values.avg = n > 0 and sum / n or 0 / 0
	for i = 2, #values - 1 do
		squares = squares + (values[i] - values.avg) ^ 2
	end
	values.stdDev = n > 1 and math.sqrt(squares / (n - 1)) or 0 / 0
end

local openFiles = {}

local function output(file)
	if type(file) ~= "string" then
		return file or io.stdout
	end
	if not openFiles[file] then
		local opened, problem = io.open(file, "w+")
		if not opened then
			log:fatal("cannot write statistics: %s", problem)
		end
		openFiles[file] = opened
	end
	return openFiles[file]
end

local function newCounter(direction, read, name, dev, format, file)
	if type(name) == "table" then -- the name was left out
		name, dev, format, file = nil, name, dev, format
	end
	dev = rawget(dev, "dev") or dev -- a queue stands for its device
	local printer = formats[format or "plain"] or log:fatal("Unsupported output format %s", tostring(format))
	return setmetatable({
		name = name or tostring(dev):sub(2, -2), dev = dev, direction = direction, read = read, printer = printer,
		file = output(file), total = 0, totalBytes = 0, mpps = {}, mbit = {}, wireMbit = {},
	}, counter)
end

--- Counter of what a device received: newDevRxCounter([name,] dev[, format[, file]]).
function stats:newDevRxCounter(...)
	return newCounter("RX", function(dev) return dev:getRxStats() end, ...)
end

--- Counter of what a device sent: newDevTxCounter([name,] dev[, format[, file]]).
function stats:newDevTxCounter(...)
	return newCounter("TX", function(dev) return dev:getTxStats() end, ...)
end

local function record(self, now, silent)
	local frames, bytes = self.read(self.dev)
	local before = rawget(self, "lastUpdate")
	if before then
		local elapsed = now - before
		local mpps = (frames - self.total) / elapsed / 1e6
		local mbit = (bytes - self.totalBytes) / elapsed / 1e6 * 8
		local wireMbit = mbit + mpps * 20 * 8 -- preamble and gap
		self.total, self.totalBytes = frames, bytes
		table.insert(self.mpps, mpps)
		table.insert(self.mbit, mbit)
		table.insert(self.wireMbit, wireMbit)
		if not silent then
			self.printer.update(self, mpps, mbit, wireMbit)
		end
	else
		self.total, self.totalBytes = frames, bytes
		self.printer.init(self)
	end
	self.lastUpdate = now
	self.file:flush()
end

--- To be called often; prints once a second.
function counter:update()
	local now, before = mg.getTime(), rawget(self, "lastUpdate")
	if not before or now > before + 1 then
		record(self, now)
	end
end

--- Print the averages and the totals, after `sleepMs`.
function counter:finalize(sleepMs)
	mg.sleepMillisIdle(sleepMs or 0)
	record(self, mg.getTime(), true)
	summarize(self.mpps)
	summarize(self.mbit)
	summarize(self.wireMbit)
	self.printer.final(self)
	self.file:flush()
end

--- Print statistics from a task of its own: startStatsTask{dev, ...} or {devices={}, format=, file=}.
function stats.startStatsTask(args)
	local devices = args.devices or {}
	for _, dev in ipairs(args) do
		devices[#devices + 1] = dev
	end
	mg.startSharedTask(STATS_TASK, { devices = devices, format = args.format, file = args.file })
end

stats.tasks[STATS_TASK] = function(args)
	local counters = {}
	for _, kind in ipairs { "newDevRxCounter", "newDevTxCounter" } do
		for _, dev in ipairs(args.devices) do
			counters[#counters + 1] = stats[kind](stats, dev, args.format, args.file)
		end
	end
	while mg.running() do
		for _, each in ipairs(counters) do
			each:update()
		end
		mg.sleepMillisIdle(10)
	end
	mg.sleepMillisIdle(200)
	for _, each in ipairs(counters) do
		each:finalize()
	end
end

return strict(stats, "stats.")
