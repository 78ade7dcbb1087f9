class CreateLabLinks < ActiveRecord::Migration[6.1]
  def change
    create_table :lab_links do |t|
      t.references :issue, type: :integer, foreign_key: { on_delete: :cascade }, null: false
      t.string :target, null: false
    end
  end
end
