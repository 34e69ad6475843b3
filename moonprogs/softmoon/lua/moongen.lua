--- Tasks, time and the end of a run.
local kernel = require "softmoon.kernel"
local process = require "softmoon.process"
local shared = require "softmoon.shared"
local strict = require "softmoon.strict"

local mg = {}

--- What a new task needs to know; main.lua fills it in.
mg.context = { devices = function() return require("device").describe() end }

local function startTask(name, ...)
	if not mg.context.mainFile then
		error("This function is only available on the master task.", 2)
	end
	return process.start(mg.context, name, ...)
end

mg.startTask, mg.startSharedTask = startTask, startTask
mg.waitForTasks = process.waitForTasks

mg.running = shared.running
mg.setRuntime = shared.stopIn
function mg.stop() shared.stopIn(0) end

mg.getTime = kernel.seconds
mg.getCycles = kernel.cycles
function mg.getCyclesFrequency() return 1e9 end

local function spin(ns)
	local deadline = kernel.nanoseconds() + ns
	repeat until kernel.nanoseconds() >= deadline
end

function mg.sleepMillis(ms) spin(ms * 1e6) end
function mg.sleepMicros(us) spin(us * 1e3) end
function mg.sleepMillisIdle(ms) kernel.sleep(ms * 1e6) end
function mg.sleepMicrosIdle(us) kernel.sleep(us * 1e3) end

return strict(mg, "mg.")
