--- Histogram of nanoseconds.
local log = require "log"
local strict = require "softmoon.strict"

local histogram = strict({}, "histogram:")
histogram.__index = histogram

function histogram:new()
	return setmetatable({ counts = {}, numSamples = 0 }, histogram)
end
histogram.create = histogram.new

--- Add one value; nil is ignored.
function histogram:update(value)
	if value then
		self.counts[value] = (self.counts[value] or 0) + 1
		self.numSamples = self.numSamples + 1
	end
end

local function sorted(self)
	local values = {}
	for value in pairs(self.counts) do
		values[#values + 1] = value
	end
	table.sort(values)
	return values
end

local function quartile(self, values, share)
	local before = 0
	for _, value in ipairs(values) do
		before = before + self.counts[value]
		if before > self.numSamples * share then
			return value
		end
	end
end

local function number(value)
	return value and value == value and ("%.1f"):format(value) or "nan"
end

local function moments(self, values)
	local sum, squares = 0, 0
	for _, value in ipairs(values) do
		sum = sum + value * self.counts[value]
	end
	local average = sum / self.numSamples
	for _, value in ipairs(values) do
		squares = squares + (value - average) ^ 2 * self.counts[value]
	end
	return average, math.sqrt(squares / (self.numSamples - 1))
end

function histogram:print(prefix)
	local values = sorted(self)
	local average, deviation = moments(self, values)
	printf("%sSamples: %d, Average: %s ns, StdDev: %s ns, Quartiles: %s/%s/%s ns", prefix and ("[%s] "):format(prefix) or "",
		self.numSamples, number(average), number(deviation), number(quartile(self, values, 0.25)),
		number(quartile(self, values, 0.5)), number(quartile(self, values, 0.75)))
end

--- Write `value,count` per line, ascending.
function histogram:save(path)
	local function checked(done, problem)
		if not done then
			log:fatal("cannot write the histogram: %s", problem)
		end
		return done
	end
	log:info("Saving histogram to '%s'", path)
	local file = checked(io.open(path, "w+"))
	for _, value in ipairs(sorted(self)) do
		checked(file:write(("%s,%s\n"):format(value, self.counts[value])))
	end
	checked(file:close())
end

return histogram
