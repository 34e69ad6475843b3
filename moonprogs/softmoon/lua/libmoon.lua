return require "moongen"
