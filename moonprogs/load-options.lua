--- The command line of l2-load-latency.lua.
local options = {}

local MIN_SIZE, MAX_SIZE = 60, 9014

-- A converter for numbers of [low, high].
local function number(name, low, high, whole)
	return function(text)
		local value = tonumber(text)
		if not value or value < low or value > high or value ~= value or (whole and value % 1 ~= 0) then
			return nil, ("%s must be a %snumber from %s to %s, not '%s'"):format(name, whole and "whole " or "", low, high, text)
		end
		return value
	end
end

local function macAddress(text)
	text = tostring(text)
	if not text:match("^%x%x:%x%x:%x%x:%x%x:%x%x:%x%x$") then
		return nil, ("mac must look like 52:54:00:12:34:56, not '%s'"):format(text)
	end
	return text
end

--- Declare and parse; returns the arguments by name.
function options.parse(parser)
	parser:description("Offers a constant load, takes latency samples from it, and reports frame totals.")
	parser:argument("dev", "Port to use."):convert(number("dev", 0, 255, true))
	parser:argument("mac", "Destination MAC address of the load."):convert(macAddress)
	parser:option("-r --rate", "Offered load in kpps, total."):default(10000):convert(number("rate", 1e-3, 1e6))
	parser:option("-s --size", "Frame size in bytes, without CRC."):default(MIN_SIZE):convert(number("size", MIN_SIZE, MAX_SIZE, true))
	parser:option("-f --file", "Histogram file."):default("histogram.csv")
	parser:option("-T --time", "Seconds of load."):default(60):convert(number("time", 0.01, 1e6))
	parser:option("-t --threads", "Load tasks."):default(1):convert(number("threads", 1, 8, true))
	parser:option("-c --csv", "Write the statistics also to this file, as CSV.")
	parser:option("--max-wait", "Seconds after which a latency sample counts as lost."):default(2):convert(number("max-wait", 1e-3, 60))
	parser:option("--drain", "Seconds without a frame after which nothing more is expected back.")
		:default(0.5):convert(number("drain", 0, 60))
	return parser:parse()
end

return options
